"""Acting with a run and with what is exported of it: latency, and many environments at once.

With a checkout of an older commit (`--before`), its code acts in turns with this one.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.acting_process import small_training
from benchmarks.timing import Row, peak_flops, seconds_in_turns
from mtm.core.config import preset
from mtm.data.modalities import Modality
from mtm.deploy.exporter import export
from mtm.masks import NAMED_MASKS
from mtm.models.fixed_mask import FixedMask
from mtm.models.network import make_network
from mtm.training.threads import restored_threads

BATCHES = (1, 256)

FASTER = {"exported": 8, "run": 2.5}
"""Times as fast as the older code that the first measurement was of, at batch 1."""

TURNS = 20
"""Of each program; one of rollouts takes seconds, and gets three."""

HOPPER = (
    Modality("states", (11,)),
    Modality("returns", (), role="return"),
    Modality("actions", (3,), role="action"),
)


@restored_threads()
def measure(before: Path | None) -> list[Row]:
    """Seconds of an action with one thread, and the rate of acting in 140 environments."""
    torch.set_num_threads(1)
    peak = peak_flops()
    rows = [Row("acting", "torch.mm of 2048 x 2048, one thread", peak / 1e9, "GFLOP/s")]
    source = {} if before is None else {"before": (f"--source={before}",)}
    with tempfile.TemporaryDirectory() as folder:
        export(small_training(), Path(folder) / "exported")
        exported = f"--exported={Path(folder) / 'exported'}"
        for batch in BATCHES:
            rows += _latencies({"exported": (exported,), "run": (), **source}, batch, peak)
    return rows + _rollouts({"run": (), "random": ("--random",), **source})


def _latencies(programs: dict[str, tuple[str, ...]], batch: int, peak: float) -> list[Row]:
    """Of an action with each program, the older code last."""
    seconds, rows = _seconds(programs, "action", f"--batch={batch}", turns=TURNS), []
    for name, taken in seconds.items():
        what = f"one RCBC action, batch {batch}, {name}"
        asked = "below 0.5" if (name, batch) == ("exported", 1) else ""
        rows.append(Row("acting", what, taken * 1e3, "ms", asked))
        if name == "before":
            continue
        rows.append(Row("acting", f"{what}: share of peak", flops(batch) / taken / peak, ""))
        if "before" in seconds:
            least = FASTER[name] if batch == 1 else FASTER["run"]
            times = seconds["before"] / taken
            rows.append(Row("acting", f"{what}: before / now", times, "times", f"at least {least}"))
    return rows


def _rollouts(programs: dict[str, tuple[str, ...]]) -> list[Row]:
    """Of 140 environments, with a run and with random actions."""
    seconds = _seconds(programs, "rollout", turns=3)
    rows = [
        Row("acting", f"140 environments, {name}", 140 / taken, "steps/s")
        for name, taken in seconds.items()
    ]
    share = seconds["random"] / seconds["run"]
    what = "140 environments, speed with the run / with random actions"
    return [*rows, Row("acting", what, share, "times", "at least 0.75")]


def flops(batch: int) -> int:
    """Floating-point operations of a return-conditioned action in so many environments."""
    config = preset("cpu").model
    question = NAMED_MASKS["rcbc"].question(HOPPER, config.segment_length, 0)
    masks = (torch.from_numpy(mask) for mask in (question.visible, question.wanted))
    fixed = FixedMask(make_network(HOPPER, config).eval(), *masks)
    values = {m.name: torch.zeros(batch, config.segment_length, *m.shape) for m in HOPPER}
    # With gradients, as sums in place, which are made without them, are not counted.
    with torch.enable_grad(), FlopCounterMode(display=False) as counter:
        fixed(values)
    return counter.get_total_flops()


def _seconds(programs: dict[str, tuple[str, ...]], *words: str, turns: int) -> dict[str, float]:
    commands = {name: ("acting_process", *words, *more) for name, more in programs.items()}
    found = seconds_in_turns(commands, steps=turns, warmup=1)
    return {name: turn.step for name, turn in found.items()}
