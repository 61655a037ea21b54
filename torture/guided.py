"""Inputs that a fuzzer makes by watching which lines they reach: atheris, for parsers written here.

Each parser runs in a process of its own, instrumented as it is imported, for so many inputs that
begin with sound ones. What is not an error of ours, takes too long or too much memory is a fault;
the input that caused it is told in hexadecimal. Needs atheris (`pip install atheris`).
"""

from __future__ import annotations

import importlib.util
import io
import json
import pickle
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np

from torture.outcomes import Row, tried

Reading = Callable[[bytes], object]

RUNS = 20_000
"""Inputs for each parser."""

SECONDS = 10
"""For one input; a process hangs after as many minutes."""

MEMORY = 2048
"""MiB that a process may take."""


def guided(
    runs: int = RUNS,
    only: Collection[str] = (),
    say: Callable[[Row], None] = lambda row: None,
) -> list[Row]:
    """Run so many inputs through each parser."""
    rows = []
    for name in only or TARGETS:
        row = Row("guided", name)
        if importlib.util.find_spec("atheris") is None:
            row.skipped = "atheris is not installed"
        else:
            with tried(row), tempfile.TemporaryDirectory(prefix="mtm-guided-") as folder:
                _one(name, runs, Path(folder), row)
        say(row)
        rows.append(row)
    return rows


def _one(name: str, runs: int, folder: Path, row: Row) -> None:
    corpus = folder / "corpus"
    corpus.mkdir()
    (folder / "work").mkdir()
    for number, content in enumerate(TARGETS[name][1](folder)):
        (corpus / f"sound-{number}").write_bytes(content)
    limits = [f"-timeout={SECONDS}", f"-rss_limit_mb={MEMORY}", "-seed=1", "-max_len=4096"]
    words = [f"-runs={runs}", *limits, f"-artifact_prefix={folder}/fault-", str(corpus)]
    ended = subprocess.run(
        [sys.executable, "-m", "torture.guided", name, str(folder / "work"), *words],
        capture_output=True,
        timeout=60 * SECONDS,
        check=False,
    )
    said = ended.stderr.decode(errors="replace") + ended.stdout.decode(errors="replace")
    faults = [f"{f.name} {f.read_bytes().hex()}" for f in sorted(folder.glob("fault-*"))]
    done = re.search(r"Done (\d+) (?:runs|in)", said)
    if ended.returncode or faults or done is None:
        row.broke(f"exit code {ended.returncode}: {faults}: {said[-1500:]}")
        return
    row.cases = int(done.group(1))
    row.outcomes["read, or refused"] = row.cases


def main(name: str, folder: Path, words: list[str]) -> None:
    """Fuzz a parser until its inputs are used up; in a process of its own.

    The last word is the folder of the sound inputs, which it must take.
    """
    import atheris

    sys.modules.pop("pickle")  # only what is imported anew is instrumented
    with atheris.instrument_imports(include=["mtm", "pickle"]):
        reading = TARGETS[name][0](folder)
    from mtm.core.errors import MTMError

    def one(content: bytes) -> None:
        try:
            reading(content)
        except MTMError as error:
            if not str(error).strip():
                raise AssertionError("an error that says nothing") from error

    for file in sorted(Path(words[-1]).iterdir()):
        reading(file.read_bytes())
    atheris.Setup([sys.argv[0], *words], one)
    atheris.Fuzz()


def _at(path: Path, use: Callable[[Path], Any]) -> Reading:
    def reading(content: bytes) -> None:
        path.write_bytes(content)
        use(path)

    return reading


def _pickle(folder: Path) -> Reading:
    from mtm.data.formats import pickles

    return _at(folder / "a.pkl", pickles.load_file)


def _pickles(folder: Path) -> list[bytes]:
    pieces = [{"observations": np.zeros((3, 2)), "actions": np.ones((3, 1), "f4")}] * 2
    return [pickle.dumps(pieces, protocol) for protocol in (0, 2, 4, 5)]


def _npz(folder: Path) -> Reading:
    from mtm.data.formats import npz

    return _at(folder / "a.npz", npz.load_file)


def _npzs(folder: Path) -> list[bytes]:
    content = io.BytesIO()
    steps = {"observations": np.zeros((3, 2)), "actions": np.ones((3, 1), "f4")}
    np.savez(content, **steps, terminals=np.array([False, False, True]))
    return [content.getvalue()]


def _packed(folder: Path) -> Reading:
    from mtm.runs.packed import read_packed

    return _at(folder / "run.mtm", read_packed)


def _packed_runs(folder: Path) -> list[bytes]:
    from mtm.runs.bundle import seal
    from mtm.runs.packed import write_packed

    place = folder / "run.mtm"
    saved = "checkpoints/step-000000001"
    files = {"README.md": b"A run.", "config.json": b"{}", f"{saved}/state.json": b"{}"}
    write_packed(place, seal(files | {f"{saved}/model.safetensors": b"weights"}))
    return [place.read_bytes()]


def _manifest(folder: Path) -> Reading:
    from mtm.data.formats import builtin
    from mtm.data.formats.store import open_store, write_store

    place = folder / "store"
    write_store([builtin.point_mass(episodes=2, length=3)], place, "log")
    return _at(place / "manifest.json", lambda file: open_store(file.parent))


def _manifests(folder: Path) -> list[bytes]:
    from mtm.data.formats import builtin
    from mtm.data.formats.store import write_store

    place = folder / "store"
    write_store([builtin.point_mass(episodes=2, length=3)], place, "log")
    return [(place / "manifest.json").read_bytes()]


def _settings(folder: Path) -> Reading:
    from mtm.core.config import TrainConfig
    from mtm.core.errors import ConfigError
    from mtm.core.plain_data import expecting, parse_object

    def reading(content: bytes) -> None:
        with expecting("settings", ConfigError, "Mend them."):
            plain = parse_object(content)
        TrainConfig.from_json(plain)

    return reading


def _all_settings(folder: Path) -> list[bytes]:
    from mtm.core.config import TrainConfig

    return [json.dumps(TrainConfig().to_json()).encode()]


def _metrics(folder: Path) -> Reading:
    from mtm.training.trackers import read_metrics

    return _at(folder / "metrics.csv", read_metrics)


def _mix(folder: Path) -> Reading:
    from mtm.core.mask_mix import mix_faults

    return lambda content: mix_faults(content.decode(errors="replace"), ("fd", "random"))


TARGETS: dict[str, tuple[Callable[[Path], Reading], Callable[[Path], list[bytes]]]] = {
    "pickle": (_pickle, _pickles),
    ".npz": (_npz, _npzs),
    "packed run": (_packed, _packed_runs),
    "manifest of a store": (_manifest, _manifests),
    "settings": (_settings, _all_settings),
    "metrics.csv": (_metrics, lambda _: [b"step,loss\n1,0.5\n2,0.25\n"]),
    "mix of masks": (_mix, lambda _: [b"fd=0.5,random=1", b"random"]),
}
"""Parser -> functions of a folder to work in, which give what reads bytes, and sound inputs."""


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
