"""The data that a run was trained on, found again: all of them, or the held-out episodes."""

from __future__ import annotations

from mtm.core.errors import DataError
from mtm.data import loading
from mtm.data.preparation import prepare, split
from mtm.data.returns import RETURNS
from mtm.data.trajectories import TrajectoryDataset
from mtm.inference.episode_batches import shown_to
from mtm.runs.run import Run


def held_out_episodes(run: Run, spec: str | None = None) -> TrajectoryDataset:
    """The episodes that a run did not train on, or all of another data set.

    Raises:
        DataError: The run's data cannot be found, or are no longer what it was trained on; another
            data set lacks a modality of the run, or has it in another form.
    """
    config, summary = run.description.train, run.description.data
    source = own_data(run) if spec is None else loading.load(spec, config.reading)
    if source.fingerprint != summary["fingerprint"]:
        return _all_shown_to(run, source)
    prepared = prepare(source, config)
    held_out = split(prepared, config)[1]
    return prepared if held_out is None else held_out


def own_data(run: Run) -> TrajectoryDataset:
    """The data set that a run was trained on, loaded again.

    Raises:
        DataError: It cannot be found, or is no longer what it was.
    """
    config, summary = run.description.train, run.description.data
    source = loading.load(summary["spec"], config.reading)
    if source.fingerprint != summary["fingerprint"]:
        raise DataError(
            f"{summary['spec']} has changed since the run was trained (fingerprint "
            f"{summary['fingerprint']} -> {source.fingerprint}). Name data with --data."
        )
    return source


def _all_shown_to(run: Run, source: TrajectoryDataset) -> TrajectoryDataset:
    """Another data set's modalities that the run knows; raises `DataError` unless it has all."""
    shown = shown_to(run, source)
    missing = [m.name for m in run.modalities if m.name not in shown.names]
    if missing:
        made = " Returns are made of 'rewards'." if RETURNS.name in missing else ""
        raise DataError(
            f"the data have {', '.join(source.names)}; the run {run.path} also needs "
            f"{', '.join(missing)}.{made} Name data that have all modalities of the run."
        )
    return shown
