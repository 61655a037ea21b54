"""Files that vanish, with flipped bytes, and cut at every length: noticed, or without effect.

What has digests must not give anything else than what was written: the same, the checkpoint before
with a warning, or an error of ours.
"""

from __future__ import annotations

import hashlib
import random
import shutil
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtm.core.errors import MTMError
from mtm.core.plain_data import sealed
from mtm.data.formats.store import open_store
from mtm.data.verification import verify
from mtm.deploy.exported_policy import ExportedPolicy
from mtm.deploy.policy_file import read_policy_file
from mtm.evaluation.evaluate import weights_digest
from mtm.research.experiments.execute import read, write
from mtm.runs.run import load_run
from torture.outcomes import Row, timed
from torture.verbs import Material
from torture.warm import Warm

CASES = 1000
"""Of each kind of file."""


@dataclass(frozen=True)
class Target:
    """Something with digests.

    Attributes:
        name: What it is.
        path: Where it is.
        read: Gives what it holds, to compare.
        may_give: Also allowed, with a warning: what there was before.
    """

    name: str
    path: Path
    read: Callable[[Path], Any]
    may_give: tuple[Any, ...] = ()


def damage(
    warm: Warm, cases: int = CASES, say: Callable[[Row], None] = lambda row: None
) -> list[Row]:
    """Damage everything that has digests."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="mtm-damage-") as name:
        folder = Path(name)
        for target in _targets(Material.make(folder, warm), folder, warm):
            row = Row("damage", target.name)
            with timed(row):
                _damage(target, folder / f"copy of {target.name}", cases, row)
            say(row)
            rows.append(row)
    return rows


def _targets(material: Material, folder: Path, warm: Warm) -> list[Target]:
    run, store, packed, exported = (
        material.run,
        *(folder / n for n in ("store", "run.mtm", "export")),
    )
    for words in (
        ["data", "convert", str(material.data), str(store)],
        ["pack", str(run), str(packed)],
        ["export", str(run), "--out", str(exported), "--capability", "bc"],
    ):
        ended = warm.run(words)
        assert ended.code == 0, ended.said
    result = folder / "result"
    result.mkdir()
    write(result / "result.json", sealed({"result": {"mean": 12.5, "values": [1.25, 3e-7]}}))
    before = weights_digest(load_run(run, 2).model)
    return [
        Target("a run with two checkpoints", run, _run, ((2, before),)),
        Target("a store", store, _store),
        Target("a packed run", packed, _run),
        Target("an export", exported, _exported),
        Target("a result", result, lambda path: read(path / "result.json")["result"]),
    ]


def _run(path: Path) -> Any:
    run = load_run(path)
    return run.step, weights_digest(run.model)


def _store(path: Path) -> Any:
    dataset = open_store(path)
    verify(dataset)
    arrays = [dataset.arrays[name].tobytes() for name in dataset.names]
    return hashlib.sha256(b"".join(arrays)).hexdigest(), dataset.modalities, dataset.ends.tolist()


def _exported(path: Path) -> Any:
    described = read_policy_file(path)
    ExportedPolicy(described, "bc")  # compares the graph with its digest
    return described.to_json()


def _damage(target: Target, copy: Path, cases: int, row: Row) -> None:
    rng = random.Random(target.name)
    sound = target.read(target.path)
    files = [p.relative_to(target.path) for p in target.path.rglob("*") if p.is_file()]
    files = [f for f in files if f.suffix != ".csv" and f.name != ".lock"] or [Path()]
    work = copy / target.path.name
    copy.mkdir()
    if target.path.is_dir():
        shutil.copytree(target.path, work)
    else:
        shutil.copy(target.path, work)
    for number in range(cases):
        file = files[number % len(files)]
        place = work / file if target.path.is_dir() else work
        content = (target.path / file if target.path.is_dir() else target.path).read_bytes()
        what, changed = _changed(content, number // len(files), rng)
        if changed is None:
            place.unlink()
        else:
            place.write_bytes(changed)
        outcome = _read(target, work, sound)
        if outcome.startswith("!"):
            row.broke(f"{file}, {what}: {outcome[1:]}")
        else:
            row.held(outcome)
        place.write_bytes(content)


def _changed(content: bytes, number: int, rng: random.Random) -> tuple[str, bytes | None]:
    """The content without, cut or with flipped bits, by turns; first it vanishes."""
    if number == 0 or not content:
        return "vanished", None
    if number % 2:
        length = rng.randrange(len(content))
        return f"cut to {length}", content[:length]
    data = bytearray(content)
    places = [rng.randrange(len(data)) for _ in range(rng.randint(1, 3))]
    for place in places:
        data[place] ^= 1 << rng.randrange(8)
    return f"flipped at {places}", bytes(data)


def _read(target: Target, path: Path, sound: Any) -> str:
    """How it ended; with ! before what must not be."""
    with warnings.catch_warnings(record=True) as noticed:
        warnings.simplefilter("always")
        try:
            found = target.read(path)
        except MTMError as error:
            return "refused" if str(path.name) in str(error) else f"!no place in: {error}"
        except Exception as error:
            return f"!{type(error).__name__}: {error}"
    if found == sound:
        return "no effect"
    if found in target.may_give and any("passed over" in str(n.message) for n in noticed):
        return "fell back, said so"
    return f"!gave {found} for {sound}"
