"""Filling what a data set lacks, over whole episodes, with a stated error for every value.

What is known stays as it is. How good the labels are is measured on held-out episodes, where the
truth is known: they are given the gaps of the data set's own episodes, and filled in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mtm.core.errors import DataError
from mtm.core.randomness import Purpose, generator
from mtm.core.reading import Reading
from mtm.data import concatenate, loading
from mtm.data.loading import DataSpec
from mtm.data.modalities import BoolArray, IntArray
from mtm.data.preparation import split
from mtm.data.trajectories import ABSENT_CLASS, TrajectoryDataset
from mtm.inference.engine import Arrays, stated_errors
from mtm.inference.episode_batches import EpisodeBatch, groups, presence, shown_to
from mtm.inference.error_calibration import Confidence, Floats, surroundings
from mtm.inference.inputs import Given
from mtm.inference.label_errors import LabelErrors, Trial
from mtm.inference.run_data import held_out_of, is_own, own_data, prepared_for
from mtm.inference.windowing import fill, no_certainty
from mtm.runs.run import Run

HELD_OUT_STEPS = 20_000
"""Held-out steps that errors are measured on, about as many at most."""


@dataclass(frozen=True)
class RelabelledPart:
    """Some relabelled episodes.

    Attributes:
        dataset: The episodes, with what could be filled filled in.
        expected_error: For each wanted modality, (N,): 0 where the value was given, NaN where it
            is still absent, because nothing at all is known of the episode.
    """

    dataset: TrajectoryDataset
    expected_error: Mapping[str, NDArray[np.float32]]

    def beside(
        self, dataset: TrajectoryDataset, had: Collection[str]
    ) -> tuple[Arrays, TrajectoryDataset]:
        """The labels apart from the originals: values by modality, and the episodes as they were.

        Args:
            dataset: The relabelled episodes, perhaps with other metadata.
            had: The modalities that they had before; others are taken away.

        Returns:
            Labels, with NaN (or -1 for classes) where none could be given, and the episodes.
        """
        labels: Arrays = {}
        given: dict[str, BoolArray] = {}
        for name, error in self.expected_error.items():
            values = dataset.arrays[name].copy()
            values[np.isnan(error)] = np.nan if values.dtype.kind == "f" else ABSENT_CLASS
            labels[name] = values
            given[name] = error == 0
        was = dataset.select([name for name in dataset.names if name in had])
        return labels, was.with_present({n: mask for n, mask in given.items() if n in had})


@dataclass(frozen=True)
class Relabelled(RelabelledPart):
    """A relabelled data set.

    Attributes:
        errors: How good the labels are, for each modality that was filled.
    """

    errors: Mapping[str, LabelErrors]


def relabel(
    run: Run,
    data: DataSpec | TrajectoryDataset | None = None,
    want: str | Sequence[str] = ("actions",),
    *,
    held_out: DataSpec | TrajectoryDataset | None = None,
) -> Relabelled:
    """Fill the missing values of some modalities over whole episodes.

    Args:
        run: A trained run.
        data: What to fill; NaN in files counts as a gap. The run's own training episodes, without
            what `drop` and `gaps` took away, if not given; the same if it is the run's own data
            set, which may have moved, and lacks nothing.
        want: The modalities to fill.
        held_out: Labelled episodes that the run did not see, to measure errors on; its own
            held-out ones if not given, and those of the run's own data set if it is given.

    Raises:
        DataError: There is nothing to fill, the data do not fit the model, or no error can be
            measured.
    """
    work = Relabelling(run, data, want, held_out=held_out)
    errors = work.measure()
    parts = list(work.parts())
    joined = concatenate.join([part.dataset for part in parts], work.dataset.metadata.source)
    expected = {
        name: np.concatenate([part.expected_error[name] for part in parts]) for name in work.want
    }
    return Relabelled(joined, expected, errors)


class Relabelling:
    """The work of `relabel` in pieces, so that memory stays bounded and progress can be shown.

    Call `measure`, then `parts`. The arguments are those of `relabel`; `reading` is how to read
    `data` and `held_out`. If None, they are read in the run's own way, and what its reading names
    may be missing from them.
    """

    def __init__(
        self,
        run: Run,
        data: DataSpec | TrajectoryDataset | None,
        want: str | Sequence[str],
        *,
        held_out: DataSpec | TrajectoryDataset | None = None,
        reading: Reading | None = None,
    ) -> None:
        self.run = run
        self.want = tuple(dict.fromkeys([want] if isinstance(want, str) else want))
        for name in self.want:
            run.modalities.named(name)
        source = own_data(run) if data is None else _load(run, data, reading)
        own = source if is_own(run, source) else None
        self._take(source)
        if own is not None and (data is None or not self._to_fill):
            self._take(training_episodes(run, own))
        if not self._to_fill:
            raise DataError(
                f"nothing to fill: no step of {self.dataset.metadata.source} "
                f"({self.dataset.num_steps:,} steps) lacks {' or '.join(self.want)}. To fill what "
                "a training took away (drop, gaps), leave the data out: the run finds them."
            )
        self._held_out = _some(shown_to(run, _labelled(run, own, held_out, reading)))
        self._confidence: dict[str, Confidence] = {}

    @cached_property
    def total(self) -> int:
        """Steps of work in all."""
        return self._held_out.num_steps * len(self._to_fill) + self.dataset.num_steps

    def measure(self, done: Callable[[int], None] | None = None) -> dict[str, LabelErrors]:
        """The errors of the labels on held-out episodes; `done` is told the steps of work done.

        Raises:
            DataError: The held-out episodes lack what is wanted.
        """
        found, worked = {}, 0
        for name in self._to_fill:
            trials = []
            for episodes in groups(self.run, self._held_out):
                trials.append(self._try(name, episodes))
                worked += int(self._held_out.lengths[episodes].sum())
                if done is not None:
                    done(worked)
            trial = Trial.joined(trials)
            if not len(trial.error):
                raise DataError(
                    f"the held-out episodes have no {name}, so nothing can be said of the error of "
                    "the labels. Name labelled episodes that the run did not see (held_out)."
                )
            self._confidence[name] = Confidence.fit(trial.features, trial.error)
            found[name] = trial.summary(self._lacking[name], self._confidence[name].crossed)
        return found

    def parts(self, done: Callable[[int], None] | None = None) -> Iterator[RelabelledPart]:
        """The relabelled episodes, some at a time, in order; call `measure` first."""
        worked = self.total - self.dataset.num_steps
        for episodes in groups(self.run, self.dataset):
            yield self._fill(episodes)
            worked += int(self.dataset.lengths[episodes].sum())
            if done is not None:
                done(worked)

    def _take(self, dataset: TrajectoryDataset) -> None:
        """Work on this data set."""
        self.dataset, self._shown = dataset, shown_to(self.run, dataset)
        self._lacking = {name: self._count_lacking(name) for name in self.want}

    @property
    def _to_fill(self) -> list[str]:
        return [name for name in self.want if self._lacking[name]]

    def _count_lacking(self, name: str) -> int:
        shown = self._shown
        return shown.num_steps - (shown.count_present(name) if name in shown.names else 0)

    @cached_property
    def _wanted(self) -> BoolArray:
        """Which modalities are wanted, (M,)."""
        return np.array([m.name in self.want for m in self.run.modalities])

    @cached_property
    def _lacking_episodes(self) -> dict[str, IntArray]:
        """For each modality to fill, the data's episodes that lack some of it."""
        shown = self._shown
        return {
            name: np.flatnonzero(shown.present_steps(name) < shown.lengths)
            if name in shown.names
            else np.arange(shown.num_episodes)
            for name in self._to_fill
        }

    def _answer(self, given: EpisodeBatch, asked: BoolArray) -> tuple[Arrays, Floats]:
        """The wanted modalities with answers where asked, and features of each step."""
        # Members say by how much they disagree; what one network says of itself was not tried.
        members = self.want if self.run.members > 1 else ()
        certainty = no_certainty(self.run, members, asked.shape[:2])
        known = Given(given.values, given.known, True)
        filled = fill(self.run, known, self.want, asked, certainty or None)
        for name in self.want:
            m, here = self.run.modalities.named(name), asked[:, :, self.run.modalities.place(name)]
            if m.role == "action" and m.kind == "continuous":  # none beyond those in the data
                s = self.run.normalizer.statistics[name]
                filled[name][here] = np.clip(filled[name][here], s.low, s.high)
        around = given.values | filled
        stated = {
            name: np.where(
                asked[:, :, self.run.modalities.place(name)],
                stated_errors(self.run, name, found),
                0,
            )
            for name, found in certainty.items()
        }
        return filled, surroundings(self.run, around, given.known, given.known | asked, stated)

    def _try(self, name: str, episodes: IntArray) -> Trial:
        """Hide a modality of held-out episodes as the data lack it, fill it in, and compare."""
        run, i = self.run, self.run.modalities.place(name)
        truth = EpisodeBatch.of(run, self._held_out, episodes)
        given = truth.hiding(run, truth.known & self._gaps(name, episodes, truth.known.shape[1]))
        asked = truth.known & ~given.known & self._wanted & _something(given.known)
        filled, features = self._answer(given, asked)
        right = truth.values.get(name, filled[name])
        m, known = run.modalities[i], given.known[:, :, i]
        return Trial.of(run, m, features, filled[name], right, known, asked[:, :, i])

    def _gaps(self, name: str, episodes: IntArray, length: int) -> BoolArray:
        """What held-out episodes may show, (B, S, M): as much as data episodes that lack it."""
        rng = generator(0, Purpose.RELABEL, 1 + int(episodes[0]))
        lacking = rng.choice(self._lacking_episodes[name], size=len(episodes))
        shown = np.zeros((len(episodes), length, len(self.run.modalities)), bool)
        for row, steps in enumerate(self._held_out.lengths[episodes].tolist()):
            known = presence(self.run, self._shown, int(lacking[row]))
            lost = ~known[:, self.run.modalities.place(name)]
            shown[row, :steps] = known[laid_over(lost, steps)]
        return shown

    def _fill(self, episodes: IntArray) -> RelabelledPart:
        run = self.run
        given = EpisodeBatch.of(run, self._shown, episodes)
        known, inside = given.known, given.inside
        asked = inside[:, :, None] & ~known & self._wanted & _something(known)
        filled, features = self._answer(given, asked)
        labels, marks, expected = {}, {}, {}
        for name in self.want:
            i = run.modalities.place(name)
            error = np.where(known[:, :, i], 0.0, np.nan)
            if self._lacking[name]:
                here = asked[:, :, i]
                error[here] = self._confidence[name].expected(features[here])
            expected[name] = error[inside].astype(np.float32)
            labels[name] = filled[name][inside]
            marks[name] = (known | asked)[:, :, i][inside]
        return RelabelledPart(self._with_labels(episodes, labels, marks), expected)

    def _with_labels(
        self, episodes: IntArray, labels: Arrays, marks: Mapping[str, BoolArray]
    ) -> TrajectoryDataset:
        """Episodes of the data set with other values of some modalities."""
        data = self.dataset
        data.check_stored()
        spans = [slice(int(data.starts[e]), int(data.ends[e])) for e in episodes]
        arrays = {n: np.concatenate([data.arrays[n][s] for s in spans]) for n in data.names}
        present = {n: np.concatenate([mask[s] for s in spans]) for n, mask in data.present.items()}
        offsets = np.append(0, np.cumsum(data.lengths[episodes]))
        ends = None if data.terminated is None else data.terminated[episodes]
        part = TrajectoryDataset(
            data.modalities, arrays, offsets[:-1], offsets[1:], present, data.metadata, ends
        )
        for name, values in labels.items():
            if name not in data.names:
                part = part.with_modality(self.run.modalities.named(name), values)
            part.arrays[name], part.present[name] = values, marks[name]
        return part


def training_episodes(run: Run, source: TrajectoryDataset) -> TrajectoryDataset:
    """The episodes that a run was trained on, without what `drop` and `gaps` took away.

    Args:
        run: A trained run.
        source: Its own data set.
    """
    config = run.description.train
    training = split(prepared_for(run, source), config).training
    view = source.subset(np.searchsorted(source.starts, training.starts))
    for name in config.drop | config.gaps:
        if name not in source.names:  # returns, which would be made of rewards once more
            view = view.with_modality(training.modality(name), training.arrays[name])
    taken = {name: mask for name, mask in training.present.items() if name in view.names}
    return view.with_present(taken)


def laid_over(lost: BoolArray, length: int) -> IntArray:
    """Which steps of an episode to lay over another one, so that the ends of both meet.

    Args:
        lost: Where the episode lacks something, (S,); somewhere at least.
        length: Steps of the other one. If it is shorter, steps in the middle are left out, or all
            far from the first loss if that leaves none.

    Returns:
        Steps of the first episode, (length,).
    """
    time = np.arange(length)
    steps: IntArray = np.where(2 * time < length, time, len(lost) - length + time) % len(lost)
    if not lost[steps].any():
        steps = time + np.clip(lost.argmax() - length // 2, 0, len(lost) - length)
    return steps


def _load(
    run: Run, data: DataSpec | TrajectoryDataset, reading: Reading | None
) -> TrajectoryDataset:
    """Data as the user says, or else as the run reads its own; NaN is a gap."""
    if isinstance(data, TrajectoryDataset):
        return data
    if reading is not None:
        return loading.load(data, replace(reading, nan_is_absent=True))
    own = replace(run.description.train.reading, nan_is_absent=True)
    return loading.load_available(data, own)


def _labelled(
    run: Run,
    own: TrajectoryDataset | None,
    held_out: DataSpec | TrajectoryDataset | None,
    reading: Reading | None,
) -> TrajectoryDataset:
    """Episodes to measure errors on; `own` is the run's data set, if it is at hand."""
    if held_out is not None:
        labelled = _load(run, held_out, reading)
        return held_out_of(run, labelled) if is_own(run, labelled) else labelled
    if run.description.train.validation_fraction == 0:
        raise DataError(
            f"{run.path} held no episodes out, so the error of its labels cannot be measured. Name "
            "labelled episodes that it did not see (held_out)."
        )
    try:
        return held_out_of(run, own_data(run) if own is None else own)
    except DataError as error:
        raise DataError(
            f"the error of the labels is measured on the run's held-out episodes: {error} Or name "
            "labelled episodes that it did not see (held_out)."
        ) from error


def _some(episodes: TrajectoryDataset) -> TrajectoryDataset:
    """Enough of the episodes to measure errors on, drawn at random."""
    order = generator(0, Purpose.RELABEL).permutation(episodes.num_episodes)
    until = np.cumsum(episodes.lengths[order])
    return episodes.subset(np.sort(order[: np.searchsorted(until, HELD_OUT_STEPS) + 1]))


def _something(known: BoolArray) -> BoolArray:
    """Whether anything is known of an episode, (B, 1, 1)."""
    found: BoolArray = np.any(known, axis=(1, 2), keepdims=True)
    return found
