"""Latency of return-conditioned acting: the run itself, what is exported of it, and the past."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.acting_process import shortened
from benchmarks.timing import Row, peak_flops, seconds_in_turns
from mtm.control import policies
from mtm.core.config import preset
from mtm.deploy.exporter import export
from mtm.deploy.graphs import FixedMaskGraph
from mtm.masks import NAMED_MASKS
from mtm.runs.run import Run
from mtm.training.train import train

BATCHES = (1, 256)
TURNS, WARMUP = 40, 4
POLICIES = ("exported", "run")
FASTER = {("exported", 1): 8, ("run", 1): 2.5, ("exported", 256): 2.5, ("run", 256): 2.5}
"""Times as fast as the code before."""


def measure(before: Path | None = None) -> list[Row]:
    """Milliseconds of an action at the `cpu` size, in turns; share of the machine's peak.

    Args:
        before: A checkout of an earlier version to compare with.
    """
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        run = train("builtin:hopper", shortened(preset("cpu")), out / "run", silent=True)
        export(run, out / "exported")
        for batch in BATCHES:
            rows += _latencies(run, out, batch, before)
    return rows


def _latencies(run: Run, out: Path, batch: int, before: Path | None) -> list[Row]:
    programs: dict[str, tuple[object, ...]] = {
        what: ("acting_process", what, batch, "--folder", out / what) for what in POLICIES
    }
    if before is not None:
        programs["before"] = ("acting_process", "run", batch, "--source", before)
    peaks = [peak_flops()]
    taken = seconds_in_turns(programs, TURNS, WARMUP)
    peaks.append(peak_flops())  # a shared machine gets faster and slower meanwhile
    flops, peak = _operations(run, batch), statistics.fmean(peaks)
    part, rows = f"deployment, batch {batch}", []
    for what, turn in taken.items():
        asked = "below 0.5" if (what, batch) == ("exported", 1) else ""
        rows.append(Row(part, f"{what}: an action", turn.step * 1e3, "ms", asked))
    for what in POLICIES:
        share = flops / taken[what].step / peak
        rows.append(Row(part, f"{what}: share of the machine's peak", share, ""))
        if before is not None:
            faster = taken["before"].step / taken[what].step
            asked = f"at least {FASTER[what, batch]}"
            rows.append(Row(part, f"{what}: as fast as before", faster, "times", asked))
    return rows


def _operations(run: Run, batch: int) -> int:
    """Floating-point operations that an action needs: the products of the specialised network."""
    policy = policies.return_conditioned(run)
    question = NAMED_MASKS["rcbc"].question(run.modalities, run.segment_length, 0)
    graph = FixedMaskGraph(run, question.visible & policy.shows(0), question.wanted)
    example = [torch.zeros(batch, *port.shape) for port in graph.inputs]
    with torch.inference_mode(), FlopCounterMode(display=False) as counter:
        graph(*example)
    return int(counter.get_total_flops())
