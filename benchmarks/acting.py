"""Acting with a run: the latency of an action, and many environments against no model at all.

With a checkout of an older commit (`--before`), the same is asked of its code, in turns.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.timing import Row, peak_flops, seconds_in_turns
from mtm.core.config import preset
from mtm.data.modalities import Modality
from mtm.masks import NAMED_MASKS
from mtm.models.fixed_mask import FixedMask
from mtm.models.network import make_network
from mtm.training.threads import restored_threads

BATCHES = (1, 256)

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
    for batch in BATCHES:
        seconds = seconds_of_programs(
            {"now": (), **source}, "action", f"--batch={batch}", turns=TURNS
        )
        what = f"one RCBC action, batch {batch}"
        asked = "below 0.5" if batch == 1 else ""
        rows.append(Row("acting", what, seconds["now"] * 1e3, "ms", asked))
        share = flops(batch) / seconds["now"] / peak
        rows.append(Row("acting", f"{what}: share of peak", share, "of one thread"))
        if before is not None:
            rows.append(Row("acting", f"{what}, before", seconds["before"] * 1e3, "ms"))
            times = seconds["before"] / seconds["now"]
            rows.append(Row("acting", f"{what}: before / now", times, "times", "at least 2.5"))
    programs = {"now": (), "random": ("--random",), **source}
    seconds = seconds_of_programs(programs, "rollout", turns=3)
    for name in ("now", *source):
        share = seconds["random"] / seconds[name]
        asked = "at least 0.75" if name == "now" else ""
        rows.append(Row("acting", f"140 environments, {name} / no model", share, "times", asked))
    return rows


def flops(batch: int) -> int:
    """Floating-point operations of a return-conditioned action in so many environments."""
    config = preset("cpu").model
    question = NAMED_MASKS["rcbc"].question(HOPPER, config.segment_length, 0)
    masks = (torch.from_numpy(mask) for mask in (question.visible, question.wanted))
    fixed = FixedMask(make_network(HOPPER, config).eval(), *masks)
    values = {m.name: torch.zeros(batch, config.segment_length, *m.shape) for m in HOPPER}
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        fixed(values)
    return counter.get_total_flops()


def seconds_of_programs(
    programs: dict[str, tuple[str, ...]], *words: str, turns: int
) -> dict[str, float]:
    """Seconds of each program's turn, which they take one after the other.

    Args:
        programs: Name -> words for `acting_process` that are its own.
        words: Those of all.
        turns: Of each.
    """
    commands = {name: ("acting_process", *words, *more) for name, more in programs.items()}
    found = seconds_in_turns(commands, steps=turns, warmup=1)
    return {name: turn.step for name, turn in found.items()}
