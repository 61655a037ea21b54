"""Whole episodes as batches, as a model sees them: padded at the end, zeros where nothing is known.

Letters: B episodes, S steps of the longest of them, M modalities of the model.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from mtm.core.errors import DataError
from mtm.data.modalities import BoolArray, IntArray
from mtm.data.returns import RETURNS, add_returns
from mtm.data.trajectories import TrajectoryDataset
from mtm.inference.engine import Arrays
from mtm.inference.inputs import misfit
from mtm.runs.run import Run

GROUP_STEPS = 1 << 15
"""Steps, padding included, of the episodes that are taken together, at most."""

GROUP_BYTES = 1 << 28
"""Bytes of all segments in these steps, at most: with `GROUP_STEPS`, what bounds the memory."""


@dataclass(frozen=True)
class EpisodeBatch:
    """A batch of episodes.

    Attributes:
        values: For each modality of the data (B, S, *shape).
        known: (B, S, M).
        inside: Which steps are no padding, (B, S).
    """

    values: Arrays
    known: BoolArray
    inside: BoolArray

    @classmethod
    def of(cls, run: Run, shown: TrajectoryDataset, episodes: IntArray) -> EpisodeBatch:
        """The episodes with these indices of what the model is shown."""
        lengths = shown.lengths[episodes]
        inside: BoolArray = np.arange(lengths.max()) < lengths[:, None]
        known = np.zeros((*inside.shape, len(run.modalities)), bool)
        for row, episode in enumerate(episodes):
            known[row, : lengths[row]] = presence(run, shown, int(episode))
        values = {}
        if shown.blocks is not None:
            shown.blocks.check(shown.starts[episodes], shown.ends[episodes] - 1)
        for m in shown.modalities:
            array = shown.arrays[m.name]
            values[m.name] = np.zeros((*inside.shape, *m.shape), array.dtype)
            for row, episode in enumerate(episodes):
                steps = slice(int(shown.starts[episode]), int(shown.ends[episode]))
                values[m.name][row, : lengths[row]] = array[steps]
        return cls(values, known, inside).hiding(run, known)

    def hiding(self, run: Run, known: BoolArray) -> EpisodeBatch:
        """The same with nothing but what is known, (B, S, M)."""
        values = {}
        for name, array in self.values.items():
            here = known[:, :, run.modalities.place(name)]
            wide = here.reshape(*here.shape, *[1] * (array.ndim - 2))
            values[name] = np.where(wide, array, np.zeros((), array.dtype))
        return replace(self, values=values, known=known)


def shown_to(run: Run, dataset: TrajectoryDataset, longest: int | None = None) -> TrajectoryDataset:
    """What of a data set a model can see: the modalities that it knows, and returns.

    Args:
        run: A trained run.
        dataset: Any.
        longest: Steps of the longest episode, where the data are a part of a larger set.

    Raises:
        DataError: There is none, or one does not fit the model.
    """
    names = run.modalities.names
    made = run.description.data.get("returns_made", True)  # else their units are not known
    if RETURNS.name in names and dataset.modalities.of_role("reward") and made:
        config, own = run.description.train.returns, run.description.data.get("returns_horizon")
        longest = longest or int(
            dataset.lengths.max()
        )  # beyond the run's horizon: in nearly its units
        config = replace(config, horizon=max(own, longest) if own else config.horizon)
        dataset = add_returns(dataset, config)
    known = [name for name in names if name in dataset.names]
    if not known:
        raise DataError(
            f"the model knows {', '.join(names)}; the data have {', '.join(dataset.names)}, none "
            "of them. Say what is what with reading.columns."
        )
    for name in known:
        m, wanted = dataset.modality(name), run.modalities.named(name)
        if m.shape != wanted.shape:
            raise DataError(misfit(run, wanted, (dataset.num_steps, *m.shape)))
        if m.kind != wanted.kind:
            raise DataError(
                f"modality {name!r} is {m.kind}; this model was trained on {wanted.kind} values "
                f"({run.path / 'config.json'}). Whole numbers are classes; mark where there are "
                f"none by booleans called {name}_present."
            )
        if m.classes > wanted.classes:
            raise DataError(
                f"modality {name!r} has {m.classes} classes; this model was trained on "
                f"{wanted.classes} ({run.path / 'config.json'})."
            )
    return dataset.select(known)


def presence(run: Run, shown: TrajectoryDataset, episode: int) -> BoolArray:
    """What is known of an episode, (S, M)."""
    steps = slice(int(shown.starts[episode]), int(shown.ends[episode]))
    known = np.zeros((steps.stop - steps.start, len(run.modalities)), bool)
    for name in shown.names:
        known[:, run.modalities.place(name)] = (
            shown.present[name][steps] if name in shown.present else True
        )
    return known


def groups(run: Run, dataset: TrajectoryDataset) -> Iterator[IntArray]:
    """Indices of episodes one after the other, as many at a time as may be taken together."""
    step = run.segment_length * sum(4 * m.size for m in dataset.modalities)
    most = min(GROUP_STEPS, GROUP_BYTES // step)
    group: list[int] = []
    longest = 0
    for episode, length in enumerate(dataset.lengths.tolist()):
        if group and (len(group) + 1) * max(longest, length) > most:
            yield np.array(group)
            group, longest = [], 0
        group.append(episode)
        longest = max(longest, length)
    if group:
        yield np.array(group)
