"""The data that a run was trained on, found again: all of them, or the episodes held out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from mtm.core.errors import DataError
from mtm.data import loading
from mtm.data.loading import DataSpec
from mtm.data.modalities import BoolArray
from mtm.data.preparation import prepare, split
from mtm.data.returns import RETURNS, reward_of
from mtm.data.splitting import episodes_to_hold_out
from mtm.data.trajectories import TrajectoryDataset
from mtm.inference.episode_batches import shown_to
from mtm.runs.run import Run


def reported_episodes(
    run: Run, spec: DataSpec | None = None, say: Callable[[str], None] | None = None
) -> TrajectoryDataset:
    """The test episodes of a run's own data, all if it held none out; or all of another data set.

    Args:
        run: A trained run.
        spec: The other data set. One with the fingerprint of the run's own is the run's own,
            wherever it lies now. None: where it was.
        say: Told where episodes that are reported have chosen the best checkpoint as well.

    Raises:
        DataError: The run's data cannot be found, or are no longer what it was trained on; another
            data set lacks a modality of the run, or has it in another form.
    """
    config = run.description.train
    source = own_data(run) if spec is None else loading.load(spec, config.reading)
    if not is_own(run, source):
        return _all_shown_to(run, source)
    prepared = prepared_for(run, source)
    parts = split(prepared, config)
    if say is not None and parts.held_out is not None and parts.in_both:
        say(
            f"{parts.in_both} of {parts.held_out.num_episodes} held-out episode(s) are the only "
            "ones of their kind: they choose the best checkpoint, and are reported too."
        )
    return prepared if parts.test is None else parts.test


def held_out_of(run: Run, own: TrajectoryDataset) -> TrajectoryDataset:
    """The held-out episodes of the data set that a run was trained on; all if it held none out."""
    prepared = prepared_for(run, own)
    held_out = split(prepared, run.description.train).held_out
    return prepared if held_out is None else held_out


def prepared_for(run: Run, own: TrajectoryDataset) -> TrajectoryDataset:
    """A run's own data set as it was prepared for it: its modalities, in its order."""
    names = tuple(m.name for m in run.modalities)
    return prepare(own, replace(run.description.train, modalities=names))


def is_held_out(run: Run, own: TrajectoryDataset) -> BoolArray:
    """Which episodes of the data set that a run was trained on it held out, (E,).

    Only marks of presence are read, and none of data without gaps: it is quick for a large store.
    """
    config = run.description.train
    if config.validation_fraction == 0:
        return np.zeros(own.num_episodes, bool)
    present = {n: own.present[n] for n in run.modalities.names if n in own.present}
    if RETURNS.name in run.modalities.names and RETURNS.name not in own.names:
        rewards = own.present.get(reward_of(own).name)
        if rewards is not None:  # an episode has some return if it has the last reward
            present[RETURNS.name] = np.zeros(len(rewards), bool)
            present[RETURNS.name][own.ends - 1] = rewards[own.ends - 1]
    return episodes_to_hold_out(
        present, own.starts, own.ends, config.validation_fraction, config.seed
    )


def episode_shown_to(run: Run, dataset: TrajectoryDataset, episode: int) -> TrajectoryDataset:
    """One episode as a model sees it: as of `shown_to`, but nothing else of the data is read.

    Raises:
        DataError: There is no such episode, or the data do not fit the model.
    """
    if not 0 <= episode < dataset.num_episodes:
        raise DataError(
            f"there is no episode {episode}; the data have 0 to {dataset.num_episodes - 1}."
        )
    steps = slice(int(dataset.starts[episode]), int(dataset.ends[episode]))
    longest = int(dataset.lengths.max())
    alone = TrajectoryDataset(
        dataset.modalities,
        {name: array[steps] for name, array in dataset.arrays.items()},
        np.zeros(1, np.int64),
        np.array([steps.stop - steps.start]),
        {n: mask[steps] for n, mask in dataset.present.items() if not mask[steps].all()},
        replace(dataset.metadata, horizon=dataset.metadata.horizon or longest),
        None if dataset.terminated is None else dataset.terminated[episode : episode + 1],
    )
    return shown_to(run, alone, longest)


def own_data(run: Run) -> TrajectoryDataset:
    """The data set that a run was trained on, loaded again.

    Raises:
        DataError: It cannot be found, or is no longer what it was.
    """
    summary = run.description.data
    source = loading.load_again(summary["spec"], run.description.train.reading)
    if not is_own(run, source):
        raise DataError(
            f"{summary['spec']} is not what the run was trained on (fingerprint "
            f"{summary['fingerprint']} -> {source.fingerprint}): it has changed since, or the run "
            "was trained on a part of it. Name data (--data on the command line, data=... in "
            "Python)."
        )
    return source


def is_own(run: Run, source: TrajectoryDataset) -> bool:
    """Whether a data set is the one that a run was trained on, wherever it was loaded from."""
    return bool(source.fingerprint == run.description.data["fingerprint"])


def _all_shown_to(run: Run, source: TrajectoryDataset) -> TrajectoryDataset:
    """Another data set's modalities that the run knows; raises `DataError` unless it has all."""
    shown = shown_to(run, source)
    missing = [m.name for m in run.modalities if m.name not in shown.names]
    if missing:
        made = " Returns are made of rewards." if RETURNS.name in missing else ""
        raise DataError(
            f"the data have {', '.join(source.names)}; the run {run.path} also needs "
            f"{', '.join(missing)}.{made} Name data that have all modalities of the run."
        )
    return shown
