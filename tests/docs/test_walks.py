"""The walks that CONTRIBUTING.md lists are those that the code takes."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Sequence
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

import mtm
from mtm.cli import main

PACKAGE = Path(mtm.__file__).parent
GUIDE = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
MOST_FILES = {"train": 20, "rollout": 12}
NO_STEP = ("core/", "data/modalities.py", "models/products.py")
"""What everything stands on: using it is no step of a walk, nor is reading a property."""


class Walk:
    """Notes the files on the way to a function, and those that run within its first call."""

    def __init__(self, goal: str) -> None:
        self.files = list[str]()
        self._module, _, self._function = goal.partition(":")
        self._inside = False

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        named = frame.f_code.co_name == self._function
        if not named and not self._inside:
            return
        at_goal = named and frame.f_globals.get("__name__") == self._module
        if event == "call" and self._inside:
            self._note(frame.f_code)
        elif event == "call" and at_goal:
            self._inside = True
            for code in _stack(frame):
                self._note(code)
        elif event == "return" and at_goal:
            sys.setprofile(None)

    def _note(self, code: CodeType) -> None:
        file = Path(code.co_filename)
        if PACKAGE not in file.parents or not code.co_flags & CO_OPTIMIZED or _is_property(code):
            return  # of others; the body of a module or a class; a property
        name = file.relative_to(PACKAGE).as_posix()
        if name not in self.files and not name.startswith(NO_STEP):
            self.files.append(name)


def _stack(frame: FrameType | None) -> list[CodeType]:
    codes = []
    while frame is not None:
        codes.append(frame.f_code)
        frame = frame.f_back
    return codes[::-1]


def _is_property(code: CodeType) -> bool:
    """Whether code is the getter of a property of some class of its module."""
    file = Path(code.co_filename).relative_to(PACKAGE).with_suffix("")
    module = importlib.import_module(".".join(("mtm", *file.parts)).removesuffix(".__init__"))
    classes = [value for value in vars(module).values() if isinstance(value, type)]
    found = (vars(owner).get(code.co_name) for owner in classes)
    return any(isinstance(p, property) and p.fget.__code__ is code for p in found)


def walk(words: Sequence[str], goal: str) -> list[str]:
    watcher = Walk(goal)
    sys.setprofile(watcher)
    try:
        assert main(words) == 0
    finally:
        sys.setprofile(None)
    return watcher.files


def listed(name: str) -> list[str]:
    section = re.search(rf"<!-- walk: {name} -->(.*?)<!-- end -->", GUIDE, re.DOTALL)
    assert section is not None
    return re.findall(r"^\d+\. `(.*?)`", section.group(1), re.MULTILINE)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = mtm.TrainConfig.from_json({"steps": 1}, mtm.preset("tiny"))
    return mtm.train(
        "builtin:hopper", config, tmp_path_factory.mktemp("walk") / "run", silent=True
    ).path


def test_from_train_to_a_gradient(tmp_path: Path) -> None:
    words = ["train", "--data", "builtin:point-mass", "--preset", "tiny", "--steps", "1"]
    taken = walk([*words, "--out", str(tmp_path / "run")], "mtm.training.masked_model:step")
    assert taken == listed("train"), f"it takes: {taken}"
    assert len(taken) <= MOST_FILES["train"]


def test_from_rollout_to_an_action(run: Path) -> None:
    pytest.importorskip("mujoco", reason="its extra is not installed")
    all_files = walk(["rollout", str(run), "--episodes", "1"], "mtm.control.rollout:act")
    elsewhere = [file for file in listed("train") if file.startswith("models/")]
    taken = [file for file in all_files if file not in elsewhere]
    assert taken == listed("rollout"), f"it takes: {taken}"
    assert len(taken) <= MOST_FILES["rollout"]


@pytest.mark.parametrize("name", MOST_FILES)
def test_the_files_exist(name: str) -> None:
    assert listed(name)
    for file in listed(name):
        assert (PACKAGE / file).is_file()
