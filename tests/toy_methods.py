"""Methods for the tests of the harness."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mtm.research.experiments.spec import RunSpec


def run(spec: RunSpec, folder: Path, needs: Sequence[Path]) -> dict[str, Any]:
    """Count the calls in the directory; fail as long as the file `settings["unless"]` is absent."""
    folder.mkdir(exist_ok=True)
    with (folder / "calls").open("a") as file:
        file.write(".")
    unless = spec.settings.get("unless")
    if unless and not Path(unless).exists():
        raise ValueError("a cable came loose")
    return {"seed": spec.seed, "needs": [(need / "calls").read_text() for need in needs]}
