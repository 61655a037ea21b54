"""Every verb that writes: how it is called, how it goes on, and what must come out of it."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import h5py
import numpy as np

from mtm.data.formats import builtin
from mtm.data.trajectories import Metadata, TrajectoryDataset
from mtm.data.writing import write
from mtm.runs import checkpoint
from torture.warm import Warm
from torture.whole import digests

Job = tuple[Any, ...]
"""What `Warm.start` takes."""

CLOCKS = ("seconds", "segments_per_second", "began", "when", "seconds_of_last_sitting")
"""What differs from one sitting to another."""

VERBS = (
    *("train", "baseline", "collect", "explore", "convert", "convert to LeRobot", "align"),
    *("relabel", "reproduce", "export", "download", "eval --json", "report", "pack"),
)
"""All that write below a folder."""

SAVE_EVERY = 2
PIECE = 1 << 12


@dataclass(frozen=True)
class Verb:
    """A verb that writes below a folder.

    Attributes:
        name: Of the verb.
        job: What to do, given the folder; also what to do again after a kill.
        result: What must be the same as without a kill, given the folder.
        before: Puts into the folder what the verb changes there.
        lost: What was lost beyond what may be, given the folder after a kill.
    """

    name: str
    job: Callable[[Path], Job]
    result: Callable[[Path], Any]
    before: Callable[[Path], object] = lambda folder: None
    lost: Callable[[Path], list[str]] = lambda folder: []


@dataclass(frozen=True)
class Material:
    """What the verbs work on.

    Attributes:
        data: Some episodes.
        gaps: The same, half of them without actions.
        swings: Of an environment.
        table: With time stamps.
        run: Trained on the data.
    """

    data: Path
    gaps: Path
    swings: Path
    table: Path
    run: Path

    @classmethod
    def make(cls, folder: Path, warm: Warm) -> Material:
        """Write the data, and train a run on them."""
        files = [folder / f"{name}.npz" for name in ("log", "gaps", "swings")]
        made = cls(*files, folder / "arm.csv", folder / "run")
        rows = "".join(f"{t / 20},{t},{t % 7}\n" for t in range(200))
        made.table.write_text(f"timestamp,x,y\n{rows}")
        whole = builtin.point_mass(episodes=24, length=12)
        write([(whole, {})], made.data, "log")
        write([(whole.without(episodes={"actions": 0.5}), {})], made.gaps, "gaps")
        write([(swings(), {})], made.swings, "swings")
        ended = warm.run(train_words(made.data, made.run, steps=4))
        assert ended.code == 0, ended.said
        return made


def swings() -> TrajectoryDataset:
    """Data of the shape of Gymnasium's pendulum."""
    rng = np.random.default_rng(0)
    shapes = {"states": (240, 3), "actions": (240, 1), "rewards": (240,)}
    arrays = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    metadata = Metadata(env_id="Pendulum-v1", horizon=200)
    return TrajectoryDataset.from_arrays(arrays, np.arange(0, 241, 24), metadata=metadata)


def train_words(data: Path, out: Path, steps: int) -> list[str]:
    """A small training that saves often."""
    words = ["train", "--data", str(data), "--preset", "tiny", "--out", str(out), "--resume"]
    words += ["--steps", str(steps), "--checkpoint-every", str(SAVE_EVERY), "--log-every", "1"]
    words += ["--validate-every", "4", "--validation-segments", "32", "--threads", "1"]
    return [*words, "--batch-size", "8", "--optimizer.warmup-steps", "2"]


def verbs(material: Material, url: str) -> dict[str, Verb]:
    """All of them; `url` is where `serving` has something to download."""
    data, gaps, swings = map(str, (material.data, material.gaps, material.swings))
    run = str(material.run)
    pendulum = ["collect", "--env", "Pendulum-v1", "--out"]
    baseline = ["baseline", "iql", "--data", data, "--scale", "tiny", "--steps", "12", "--resume"]
    baseline += ["--checkpoint-every", str(SAVE_EVERY), "--log-every", "1", "--out"]
    relabel = ["relabel", run, "--want", "actions", "--data", gaps, "--out"]
    all_verbs = (
        Verb(
            "train", lambda f: (train_words(material.data, f / "out", 12),), _trained, lost=_behind
        ),
        Verb("baseline", lambda f: ([*baseline, str(f / "out")],), _trained, lost=_behind),
        Verb(
            "collect",
            lambda f: ([*pendulum, str(f / "out"), "--steps", "200", "--record", "200"],),
            _collected,
        ),
        Verb(
            "explore",
            lambda f: ([*pendulum, str(f / "out"), "--steps", "400", "--explore"],),
            lambda f: digests(f / "out", "episode_*.npz"),
        ),
        Verb(
            "convert",
            lambda f: (["data", "convert", data, str(f / "out")],),
            lambda f: digests(f / "out", "*"),
            before=_without,
        ),
        Verb(
            "convert to LeRobot",
            lambda f: (["data", "convert", data, f"lerobot:{f / 'out'}", "--fps", "10"],),
            lambda f: digests(f / "out", "**/*"),
            before=_without,
        ),
        Verb(
            "align",
            lambda f: (["data", "align", str(material.table), str(f / "out"), "--clock", "10"],),
            lambda f: digests(f / "out", "*"),
            before=_without,
        ),
        Verb(
            "relabel",
            lambda f: ([*relabel, str(f / "out.hdf5")],),
            lambda f: _arrays(f / "out.hdf5"),
            before=_without,
        ),
        Verb("reproduce", lambda f: ("torture.verbs:reproduce", swings, str(f / "out")), _pages),
        Verb(
            "export",
            lambda f: (["export", run, "--out", str(f / "out"), "--capability", "bc"],),
            lambda f: digests(f / "out", "*"),
            before=_without,
        ),
        Verb(
            "download",
            lambda f: ("torture.verbs:download", url, str(f / "out")),
            lambda f: digests(f, "out"),
            before=_without,
        ),
        Verb(
            "eval --json",
            lambda f: (["eval", str(f / "run"), "--tasks", "fd", "--json", str(f / "out.json")],),
            lambda f: [_measured(f / name) for name in ("out.json", "run/evaluation.json")],
            before=partial(_with_run, material.run),
        ),
        Verb(
            "report",
            lambda f: (["report", run, "--out", str(f / "out")],),
            lambda f: digests(f / "out", "*.png", "*.html"),
        ),
        Verb(
            "pack",
            lambda f: (["pack", run, str(f / "out.mtm")],),
            lambda f: digests(f, "out.mtm"),
            before=_without,
        ),
    )
    known = {verb.name: verb for verb in all_verbs}
    assert tuple(known) == VERBS
    return known


def reproduce(data: str, out: str) -> None:
    """`mtm reproduce length`, in this process: the kill is to hit what computes, too."""
    from rich.console import Console

    from mtm.research.experiments import reproduce as experiments
    from mtm.research.experiments.engines import Finished
    from mtm.research.experiments.execute import execute

    class Here:
        """The engine of `mtm reproduce`, in this process and one after the other."""

        def __init__(self, threads: int) -> None:
            self.folders: list[Path] = []

        def has_room(self) -> bool:
            return True

        def submit(self, folder: Path, threads: int) -> None:
            self.folders.append(folder)

        def wait(self, seconds: float) -> list[Finished]:
            folder = self.folders.pop()
            return [Finished(folder, execute(folder))]

        def close(self) -> None:
            self.folders.clear()

    experiments.LocalEngine = Here  # type: ignore[misc, assignment]
    order = experiments.Order(("length",), "smoke", [data], seeds=1, out=Path(out))
    experiments.reproduce(order, Console(quiet=True))


def download(url: str, target: str) -> None:
    """`mtm.data.download.fetch`, as the loaders of named data sets call it."""
    from mtm.data.download import fetch

    content = served()
    fetch(Path(target), [url], size=len(content), sha256=hashlib.sha256(content).hexdigest())


def served() -> bytes:
    """What there is to download."""
    return np.random.default_rng(0).bytes(40 * PIECE)


@contextmanager
def serving() -> Iterator[str]:
    """A server of `served`, which knows parts and takes a while; yields its address."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content, said = served(), self.headers.get("Range")
            first = int(said.removeprefix("bytes=").rstrip("-")) if said else 0
            self.send_response(206 if said else 200)
            self.send_header("Content-Length", str(len(content) - first))
            if said:
                ends = f"bytes {first}-{len(content) - 1}/{len(content)}"
                self.send_header("Content-Range", ends)
            self.end_headers()
            try:
                for place in range(first, len(content), PIECE):
                    self.wfile.write(content[place : place + PIECE])
            except OSError:  # whoever asked was killed
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/out"
    finally:
        server.shutdown()
        server.server_close()


def _without(folder: Path) -> None:
    """Remove what a verb that replaces nothing has written."""
    for path in folder.glob("[!.]*"):
        if path.suffix in (".part", ".lock"):
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _with_run(run: Path, folder: Path) -> None:
    if not (folder / "run").exists():
        shutil.copytree(run, folder / "run")


def _trained(folder: Path) -> Any:
    """The weights, the optimizers' averages and the metrics at the end."""
    rows = csv.DictReader(io.StringIO((folder / "out" / "metrics.csv").read_text()))
    metrics = [{k: v for k, v in row.items() if k not in CLOCKS} for row in rows]
    last = checkpoint.steps(folder / "out" / "checkpoints")[-1]
    place = f"out/checkpoints/step-{last:09d}/*.safetensors"
    return digests(folder, place), metrics


def _behind(folder: Path) -> list[str]:
    """Whether more steps are lost than lie between two checkpoints."""
    file = folder / "out" / "metrics.csv"
    if not file.exists():
        return []
    logged = [int(row["step"]) for row in csv.DictReader(io.StringIO(file.read_text()))]
    saved = checkpoint.steps(folder / "out" / "checkpoints")
    done, kept = max(logged, default=0), saved[-1] if saved else 0
    return [f"step {done} was taken, {kept} is saved"] if done - kept > SAVE_EVERY else []


def _measured(file: Path) -> dict[str, Any]:
    """An evaluation, but for the place of its run."""
    return {k: v for k, v in json.loads(file.read_text()).items() if k != "run"}


def _collected(folder: Path) -> Any:
    """The files and their sizes: SAC goes on with other random numbers."""
    content = json.loads((folder / "out" / "collection.json").read_text())
    sets = {}
    for kind in ("expert", "medium", "medium-expert", "medium-replay"):
        with h5py.File(folder / "out" / f"{kind}.hdf5") as file:
            sets[kind] = len(file["rewards"]) % 200
    return content["finished"], sets, (folder / "out" / "under-way").exists()


def _arrays(file: Path) -> dict[str, str]:
    """Digests of the arrays of an HDF5 file, whose bytes tell the time."""
    found: dict[str, str] = {}

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            found[name] = hashlib.sha256(np.asarray(item[()]).tobytes()).hexdigest()

    with h5py.File(file) as opened:
        opened.visititems(visit)
    return found


def _pages(folder: Path) -> Any:
    """What the table of the experiment says."""
    (page,) = (folder / "out").glob("*/results.csv")
    rows = csv.DictReader(io.StringIO(page.read_text()))
    return [{k: v for k, v in row.items() if "seconds" not in k} for row in rows]
