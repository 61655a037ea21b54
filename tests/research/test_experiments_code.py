"""The code that decides a run is part of its key; results of older code are shown as such."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from mtm.core.errors import ConfigError
from mtm.research.experiments import code_digest, length, methods, reproduce, runner
from mtm.research.experiments.code_digest import modules_of
from mtm.research.experiments.execute import write
from mtm.research.experiments.methods import METHODS
from mtm.research.experiments.reproduce import Order
from mtm.research.experiments.runner import plan, results
from mtm.research.experiments.scales import SCALES
from mtm.research.experiments.spec import RunSpec

DATA = "builtin:point-mass"
MTM = RunSpec("mtm", DATA, 0, {})


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of the package's files, for the digest to read."""
    copy = tmp_path_factory.mktemp("copied") / "mtm"
    shutil.copytree(code_digest._PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(code_digest, "_PACKAGE", copy)
        forget()
        yield copy
    forget()


def forget() -> None:
    for cached in ("_modules_of", "_digest", "_tree", "_imported", "_bare"):
        getattr(code_digest, cached).cache_clear()


def digest(method: str = "mtm", needs: tuple[RunSpec, ...] = ()) -> str:
    forget()
    return code_digest.code_digest(RunSpec(method, DATA, 0, {}, needs=needs))


def test_what_decides_a_method_is_what_it_imports() -> None:
    mtm = modules_of("mtm")
    decide = {"models.attention", "training.masked_model", "masks.training_masks", "data.splitting"}
    decide |= {"evaluation.evaluate", "control.rollout", "core.randomness", "runs.checkpoint"}
    assert {f"mtm.{name}" for name in decide} <= set(mtm)
    assert not [m for m in mtm if m.startswith(("mtm.cli", "mtm.evaluation.report"))]
    assert [m for m in mtm if "experiments" in m] == ["mtm.research.experiments.train_masked"]
    assert "mtm.research.baselines.iql" in modules_of("iql")
    assert "mtm.research.baselines.agent_training" in modules_of("iql")
    assert "mtm.research.baselines.iql" not in modules_of("cql")
    assert "mtm.research.baselines.td3_agent" in modules_of("td3")
    assert all(modules_of(method) for method in METHODS)


IMPORTED = "import sys, mtm.research.experiments.train_masked\n"
IMPORTED += "print(*(name for name in sys.modules if name.startswith('mtm.')))"


def test_all_that_a_method_imports_is_in_its_digest_or_decides_nothing() -> None:
    """Against what Python itself imports."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=True
    )
    loaded = [name for name in done.stdout.split() if code_digest._counts(name)]
    files = {name for name in loaded if code_digest._file(name).name != "__init__.py"}
    assert len(files) > 40
    assert files <= set(modules_of("mtm"))


@pytest.mark.parametrize(
    ("file", "old", "new", "changes"),
    [
        ("models/attention.py", "import", "import math\nimport", True),
        ("core/randomness.py", "import", "import math\nimport", True),
        ("models/attention.py", '"""', '"""Said in other words. ', False),
        ("models/attention.py", "\nimport", "\n# a comment\n\nimport", False),
        ("research/experiments/page.py", "import", "import math\nimport", False),
        ("cli/train.py", "import", "import math\nimport", False),
        ("core/config.py", "import", "import math\nimport", False),
        ("research/baselines/iql.py", "import", "import math\nimport", False),
    ],
)
def test_the_digest_changes_with_what_decides(
    package: Path, file: str, old: str, new: str, changes: bool
) -> None:
    before, text = code_digest.code_digest(MTM), (package / file).read_text()
    assert old in text
    (package / file).write_text(text.replace(old, new, 1))
    assert (digest() != before) == changes
    (package / file).write_text(text)
    assert digest() == before


def test_the_digest_is_also_of_what_a_run_needs(package: Path) -> None:
    before, alone = digest("td3", (MTM,)), digest("td3")
    file = package / "research/experiments/train_masked.py"
    file.write_text(file.read_text() + "\nMORE = 1\n")
    assert digest("td3", (MTM,)) != before
    assert digest("td3") == alone


@pytest.fixture
def _toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(methods.METHODS, "toy", "toy_methods:run")


@pytest.mark.usefixtures("_toy")
def test_a_result_of_older_code_is_kept_and_computed_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = RunSpec("toy", DATA, 0, {}, "a toy")
    (first,) = plan([spec], tmp_path)
    assert first.folder is not None
    write(first.folder / "result.json", {"result": {"is": "older"}, "provenance": {}})
    assert plan([spec], tmp_path)[0].status == "done"
    monkeypatch.setattr(runner, "code_digest", lambda spec: "other")
    (again,) = plan([spec], tmp_path)
    assert (again.status, again.folder != first.folder) == ("queued", True)
    (drawn,) = results([spec], plan([spec], tmp_path, lambda spec: False))
    assert (drawn.value, drawn.is_older) == ({"is": "older"}, True)
    write(again.folder / "result.json", {"result": {"is": "newer"}, "provenance": {}})
    (drawn,) = results([spec], plan([spec], tmp_path, lambda spec: False))
    assert (drawn.value, drawn.is_older) == ({"is": "newer"}, False)
    assert (first.folder / "result.json").exists()


def roll(score: float) -> dict:
    return {"score": {"mean": score}, "return": {"mean": 0.0}, "target": 1.0}


def test_a_page_of_older_code_says_so_in_its_first_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib", reason="the extra `report` is not installed")
    order = Order(["length"], "smoke", [DATA], out=tmp_path, draw_only=True)
    specs = length.runs(SCALES["smoke"], [DATA], 1)
    for state in plan(specs[:1], tmp_path):
        rolls = dict.fromkeys(("auto", "fixed", "best"), roll(7.0))
        last = {"step": 1, "tasks": {"rcbc": rolls}}
        content = {"result": {"last": last, "best": last}, "provenance": origin()}
        write(state.folder / "result.json", content)
    console = Console(quiet=True)
    (page,) = reproduce.reproduce(order, console)
    text = page.read_text()
    assert text.startswith("# Effect of the length of segments")  # of this code, as far as it goes
    assert "1 runs were not asked for, and have no result yet." in text
    assert "mtm reproduce length --scale smoke" in text
    monkeypatch.setattr(runner, "code_digest", lambda spec: "other")
    first, *rest = reproduce.reproduce(order, console)[0].read_text().splitlines()
    assert first == (
        "**Of older code**: 1 of the 1 results below were made by code that has changed since "
        "(commit 0123456789ab)."
    )
    assert any("| 7.0 |" in line for line in rest)
    with pytest.raises(ConfigError, match="unknown method 'x'"):
        reproduce.reproduce(replace(order, methods=["x"]), console)


def origin() -> dict:
    machine = {"system": "a", "processor": "b", "cores": 1}
    return {"commit": "0123456789abcdef", "versions": {"torch": "1"}, "machine": machine}
