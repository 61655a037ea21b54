"""Acting by what was exported of a run, without PyTorch, against the run itself, in turns.

With a checkout of an older commit (`--before`), its code takes turns, too.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch

from benchmarks.acting import BATCHES, TURNS, flops, seconds_of_programs
from benchmarks.acting_process import TARGET, small_training
from benchmarks.timing import Row, peak_flops
from mtm.deploy import ExportConfig, export
from mtm.training.threads import restored_threads

FASTER = {1: "at least 8", 256: ""}
"""By batch, times as fast as the code before."""


@restored_threads()
def measure(before: Path | None) -> list[Row]:
    """Seconds of a return-conditioned action with one thread, and their share of its peak."""
    torch.set_num_threads(1)
    peak, rows = peak_flops(), []
    source = {} if before is None else {"before": (f"--source={before}",)}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "exported"
        written = export(small_training(), out, ExportConfig(target=TARGET))
        difference = written.check.largest_difference
        rows.append(Row("deployment", "exported - run, largest", difference, "std", "below 1e-5"))
        programs = {"exported": (f"--exported={out}",), "run": (), **source}
        for batch in BATCHES:
            seconds = seconds_of_programs(programs, "action", f"--batch={batch}", turns=TURNS)
            what = f"one RCBC action, batch {batch}"
            for name in programs:
                asked = "below 0.5" if (name, batch) == ("exported", 1) else ""
                rows.append(Row("deployment", f"{what}: {name}", seconds[name] * 1e3, "ms", asked))
            share = flops(batch) / seconds["exported"] / peak
            rows.append(Row("deployment", f"{what}: share of peak", share, "of one thread"))
            for name in ("run", *source):
                times = seconds[name] / seconds["exported"]
                asked = FASTER[batch] if name == "before" else ""
                rows.append(Row("deployment", f"{what}: {name} / exported", times, "times", asked))
    return rows
