"""Do many runs: each once, in the order that they need each other, whatever fails meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from mtm.core.atomic_write import make_directory
from mtm.core.errors import DataError, RunError
from mtm.core.locks import locked
from mtm.core.plain_data import expecting
from mtm.research.experiments.code_digest import code_digest, with_needs
from mtm.research.experiments.data import DataFacts, facts
from mtm.research.experiments.engines import Engine, Finished
from mtm.research.experiments.execute import fail, read, write
from mtm.research.experiments.spec import RunSpec

SECONDS_BETWEEN_LOOKS = 0.5
SECONDS_UNTIL_NEXT_TRY = 2.0
"""Before looking again at a run that another process computes."""

Status = Literal["queued", "submitted", "elsewhere", "done", "failed", "left out"]
OVER = ("done", "failed", "left out")
"""Statuses that do not change any more."""


@dataclass
class RunState:
    """How far a run is.

    Attributes:
        spec: What it is.
        data: Its data set; None if that cannot be had.
        folder: Its directory; None without data. Where only an older result is there, that one's.
        needs: Places in the list of the runs that it needs.
        status: `submitted` to the engine, which may still queue it.
        reason: Why it failed.
        again: When to try again, by the clock of `time.monotonic`.
        is_older: Whether the result was made by older code.
    """

    spec: RunSpec
    data: DataFacts | None
    folder: Path | None
    needs: tuple[int, ...]
    status: Status = "queued"
    reason: str | None = None
    again: float = 0.0
    is_older: bool = False


@dataclass(frozen=True)
class Result:
    """What is known of a run at the end.

    Attributes:
        spec: What it is.
        data: Its data set; None if that cannot be had.
        value: What its method returned; None if it failed.
        provenance: Commit, versions and machine behind the value.
        reason: Why there is no value; None also where it was not asked for.
        is_older: Whether older code made it.
    """

    spec: RunSpec
    data: DataFacts | None
    value: Mapping[str, Any] | None
    provenance: Mapping[str, Any] | None
    reason: str | None
    is_older: bool = False


def plan(
    specs: Iterable[RunSpec], out: Path, wanted: Callable[[RunSpec], bool] = lambda spec: True
) -> list[RunState]:
    """Give every run its directory, and list those that it needs before it; equal runs are one.

    Data sets are loaded here, once, so that a download happens before the runs that wait for it.

    Args:
        specs: What to run.
        out: Where to.
        wanted: Which of them to compute, with what they need. Of the others the newest result is
            taken, also one of older code; without any they are left out.
    """
    states: list[RunState] = []
    places: dict[str, int] = {}

    def place(spec: RunSpec) -> int:
        needs = tuple(place(need) for need in spec.needs)
        identity = _identity(spec)
        if identity not in places:
            places[identity] = len(states)
            states.append(_begin(spec, needs, out / "runs"))
        return places[identity]

    listed = list(specs)
    for spec in listed:
        place(spec)
    computed = {places[_identity(s)] for spec in listed if wanted(spec) for s in with_needs(spec)}
    with locked(_made(out) / ".lock"):
        for number, state in enumerate(states):
            _prepare(state, states, compute=number in computed)
    return states


def run_all(
    states: Sequence[RunState], engine: Engine, look: Callable[[Sequence[RunState]], None]
) -> None:
    """Do all runs that are not done.

    Args:
        states: Of `plan`; they are kept up to date.
        engine: Computes.
        look: Called whenever something may have changed.
    """
    by_folder = {state.folder: state for state in states if state.folder is not None}
    while True:
        _settle_needs(states)
        for state in states:
            if _is_ready(state, states) and engine.has_room():
                assert state.folder is not None
                engine.submit(state.folder, state.spec.threads)
                state.status = "submitted"
        look(states)
        if all(state.status in OVER for state in states):
            return
        if any(state.status == "submitted" for state in states):
            for finished in engine.wait(SECONDS_BETWEEN_LOOKS):
                _settle(by_folder[finished.folder], finished)
        else:  # all that is left is computed by other processes
            time.sleep(SECONDS_BETWEEN_LOOKS)


def results(specs: Iterable[RunSpec], states: Sequence[RunState]) -> list[Result]:
    """What is known of each of some runs, in order, with the labels that they have here."""
    found = {_identity(state.spec): state for state in states}
    gathered = []
    for spec in specs:
        state = found[_identity(spec)]
        value = provenance = None
        if state.status == "done" and state.folder is not None:
            file = state.folder / "result.json"
            content = read(file)
            with expecting(file, RunError, f"Delete {state.folder} to compute it again."):
                value, provenance = {**content["result"]}, {**content["provenance"]}
        gathered.append(Result(spec, state.data, value, provenance, state.reason, state.is_older))
    return gathered


def _begin(spec: RunSpec, needs: tuple[int, ...], folder: Path) -> RunState:
    try:
        data = facts(spec.data)
    except DataError as error:
        return RunState(spec, None, None, needs, "failed", f"no data: {error}")
    key = f"{spec.key(data.fingerprint)}-{code_digest(spec)}"
    return RunState(spec, data, folder / key, needs)


def _made(folder: Path) -> Path:
    make_directory(folder)
    return folder


def _prepare(state: RunState, states: Sequence[RunState], *, compute: bool) -> None:
    """Make a run's directory, or see that its result is there."""
    if state.folder is None or state.data is None:
        return
    if (state.folder / "result.json").exists():
        state.status = "done"
    elif not compute:
        older = _older(state.folder)
        state.status = "left out" if older is None else "done"
        state.folder, state.is_older = older or state.folder, older is not None
    elif not (state.folder / "spec.json").exists():
        keys = [folder.name for i in state.needs if (folder := states[i].folder) is not None]
        content = {
            "spec": state.spec.to_json(),
            "fingerprint": state.data.fingerprint,
            "needs": keys,
        }
        write(_made(state.folder) / "spec.json", content)


def _older(folder: Path) -> Path | None:
    """The directory of the newest result of the same run by other code."""
    key = folder.name.partition("-")[0]
    found = [
        file
        for same in (key, f"{key}-*")  # the first is of before the code was part of the name
        for file in folder.parent.glob(f"{same}/result.json")
    ]
    return max(found, key=lambda file: file.stat().st_mtime).parent if found else None


def _is_ready(state: RunState, states: Sequence[RunState]) -> bool:
    return (
        state.status in ("queued", "elsewhere")
        and time.monotonic() >= state.again
        and all(states[i].status == "done" for i in state.needs)
    )


def _settle_needs(states: Sequence[RunState]) -> None:
    """A run fails when one that it needs has failed; those that need it come later in the list."""
    for state in states:
        lost = [states[i].spec for i in state.needs if states[i].status == "failed"]
        if state.status == "queued" and lost:
            state.status = "failed"
            state.reason = f"needs a run that failed: {lost[0].label}"


def _settle(state: RunState, finished: Finished) -> None:
    assert state.folder is not None
    if finished.outcome == "done":
        state.status = "done"
    elif finished.outcome == "busy":
        state.status = "elsewhere"
        state.again = time.monotonic() + SECONDS_UNTIL_NEXT_TRY
    else:
        state.status = "failed"
        if finished.died is not None:
            fail(state.folder, finished.died)
        if finished.outcome == "stopped":
            state.reason = "stopped by a signal; the next call goes on with it"
        else:
            state.reason = read(state.folder / "failure.json")["reason"]


def _identity(spec: RunSpec) -> str:
    """The same for equal runs, whether their data can be had or not."""
    return spec.key("")
