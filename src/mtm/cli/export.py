"""`mtm export`: a run's capabilities as files that need no PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mtm.cli.asked_run import AskedRun
from mtm.cli.parsing import parse
from mtm.core.export_config import ExportConfig
from mtm.core.names import Exportable


@dataclass(frozen=True, kw_only=True)
class Arguments(AskedRun):
    """Write capabilities of a run as ONNX graphs, for `mtm.deploy`, which needs no PyTorch.

    Every graph is compared with the run first; if it differs by more than the tolerance, nothing
    is written.
    """

    out: Path
    """The directory to write; it must not exist."""
    to: Literal["onnx"] = "onnx"
    """The form of the graphs."""
    capability: tuple[Exportable, ...] = ("rcbc",)
    """What to export: policies (rcbc, bc), predictions (id, fd), features (represent), or the
    general graph that takes any mask (impute)."""
    target: str = "auto"
    """rcbc: auto, fraction:0.9, score:100, or a return such as 3000."""
    guidance: float = 1.0
    """rcbc: how far to go from the action without the return (0) to that with it (1), or beyond."""
    history: int | None = None
    """Past steps to show; if not given, none for rcbc and bc, as many as fit for fd."""
    tolerance: float = ExportConfig.tolerance
    """The largest difference from the run that is let pass."""
    data: str | None = None
    """Data to compare on; the run's held-out segments if not given."""


def main(words: Sequence[str]) -> None:
    """Export, and say how far off it is."""
    arguments = parse(Arguments, words, "mtm export")
    config = ExportConfig(
        capabilities=arguments.capability,
        target=arguments.target,
        guidance=arguments.guidance,
        history=arguments.history,
        tolerance=arguments.tolerance,
        data=arguments.data,
    )
    from mtm.deploy.exporter import export

    written = export(arguments.load(), arguments.out, config)
    check = written.check
    for name, graphs in written.graphs.items():
        takes = ", ".join(f"{port.name} {list(port.shape)}" for port in graphs[-1].inputs)
        gives = ", ".join(f"{port.name} {list(port.shape)}" for port in graphs[-1].outputs)
        print(f"{name}: {takes} -> {gives}")
    print(
        f"{arguments.out}: opset {written.opset}; differs from the run by at most "
        f"{check.largest_difference:.1e} (tolerance {check.tolerance:g}), on {check.segments} "
        f"segments: {check.of}"
    )
