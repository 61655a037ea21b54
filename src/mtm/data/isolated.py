"""Reading a file that one does not trust: in a process of its own, with a time limit.

The C library of HDF5 is known to crash on crafted files, and one wrong byte can make it go round in
circles for ever. Here such a file ends a child process, and gives an error message. What the child
hands back is a store, so nothing is unpickled on the way.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import warnings
from dataclasses import asdict
from pathlib import Path

import numpy as np

from mtm.core.atomic_write import HOST, runs
from mtm.core.config_io import from_plain
from mtm.core.errors import DataError, MTMError
from mtm.core.reading import AS_IT_IS, Reading
from mtm.core.system import available_memory
from mtm.data import loading
from mtm.data.formats.store import open_store, write_store
from mtm.data.origin import Origin
from mtm.data.trajectories import TrajectoryDataset

SECONDS = 600.0
"""That reading may take."""

PREFIX = f"mtm-isolated-{HOST}-"
"""Of the temporary directories; the process that waits for one comes next in its name."""

LIBRARIES = 1 << 33
"""Address space that Python and its libraries take before they read anything."""


def load_isolated(
    spec: loading.DataSpec, reading: Reading = AS_IT_IS, *, seconds: float | None = None
) -> TrajectoryDataset:
    """Load as `mtm.load_dataset` does, in a child process; the data set is in memory.

    Args:
        spec: What to load.
        reading: Names of columns, roles and gaps, where they are the user's own.
        seconds: How long it may take; `SECONDS` if not given.

    Raises:
        DataError: As `mtm.load_dataset`, or the child crashed or took too long.
    """
    seconds = SECONDS if seconds is None else seconds
    _remove_leftovers()
    with tempfile.TemporaryDirectory(prefix=f"{PREFIX}{os.getpid()}-") as name:
        folder, said = Path(name), json.dumps(asdict(reading))
        command = [sys.executable, "-m", __name__, loading.absolute(spec), said, name]
        try:
            done = subprocess.run(command, capture_output=True, timeout=seconds, check=False)
        except subprocess.TimeoutExpired as error:
            raise DataError(
                f"{spec}: reading it took longer than {seconds:g} s and was stopped; it is "
                "damaged, made to harm, or very large. Fetch it again."
            ) from error
        if done.returncode or not (folder / "outcome.json").exists():
            raise DataError(
                f"{spec}: reading it ended its process ({_how(done.returncode)}); it is damaged, "
                "or made to harm. Fetch it again."
            )
        outcome = json.loads((folder / "outcome.json").read_text())
        for notice in outcome["notices"]:
            warnings.warn(notice, stacklevel=2)
        if outcome["faults"]:
            raise DataError(*outcome["faults"])
        dataset = _in_memory(open_store(folder / "store"))
    return dataset.with_metadata(origin=Origin(loading.absolute(spec), reading))


def main() -> None:
    """What the child does: read, and leave a store or the faults."""
    spec, said, name = sys.argv[1:]
    _limit_memory()
    faults: list[str] = []
    with warnings.catch_warnings(record=True) as noticed:
        warnings.simplefilter("always")
        try:
            dataset = loading.load(spec, from_plain(json.loads(said), Reading()))
            write_store([dataset], Path(name) / "store", dataset.metadata.source)
        except DataError as error:
            faults += error.faults
        except MTMError as error:
            faults.append(str(error))
        except MemoryError:
            faults.append(f"{spec}: it takes more memory than this machine has left.")
    notices = [str(notice.message) for notice in noticed]
    outcome = json.dumps({"faults": faults, "notices": notices})
    (Path(name) / "outcome.json").write_text(outcome)


def _remove_leftovers() -> None:
    """Remove what processes of this machine left that were killed while they read."""
    for left in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        if not runs(left.name.removeprefix(PREFIX).partition("-")[0]):
            shutil.rmtree(left, ignore_errors=True)


def _limit_memory() -> None:
    """Let this process get what the machine has left, and no more."""
    left = available_memory()
    if left is not None and sys.platform.startswith("linux"):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (left + LIBRARIES, resource.RLIM_INFINITY))


def _in_memory(stored: TrajectoryDataset) -> TrajectoryDataset:
    stored.check_stored()
    copied = TrajectoryDataset(
        stored.modalities,
        {name: np.array(values) for name, values in stored.arrays.items()},
        stored.starts,
        stored.ends,
        {name: np.array(marks) for name, marks in stored.present.items()},
        stored.metadata,
        stored.terminated,
    )
    copied.fingerprint = stored.fingerprint
    return copied


def _how(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


if __name__ == "__main__":
    main()
