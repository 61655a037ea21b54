"""Several members in one run: what a step and an answer cost beside those of one network."""

from __future__ import annotations

import statistics
from dataclasses import replace

import torch

from benchmarks.timing import Row, seconds_of_each
from benchmarks.training import Stepper
from mtm.core.config import TrainConfig, preset
from mtm.core.system import keep_freed_memory
from mtm.data.formats import builtin
from mtm.masks import NAMED_MASKS, training_mask
from mtm.models.network import Network

MEMBERS = (1, 2, 5)
REPEATS = 60
BATCHES = (1, 64, 256)


def measure() -> list[Row]:
    """Steps at the sizes of two presets, and answers as a return-conditioned policy asks."""
    keep_freed_memory()  # as training does
    rows = [row for name in ("tiny", "cpu") for row in _steps(name, preset(name))]
    source, config = builtin.hopper(), preset("cpu")
    networks = {K: Stepper(source, _with_members(config, K)).network.eval() for K in MEMBERS}
    return rows + [row for batch in BATCHES for row in _answers(networks, batch)]


def _steps(name: str, config: TrainConfig) -> list[Row]:
    """Whole steps, in turns."""
    source, mask = builtin.hopper(), training_mask(config)
    steppers = {str(K): Stepper(source, _with_members(config, K)) for K in MEMBERS}
    seconds = seconds_of_each(
        {K: lambda stepper=stepper: stepper.step(mask) for K, stepper in steppers.items()},  # type: ignore[misc]
        at_least=0,
        repeats=REPEATS,
        average=statistics.fmean,
    )
    return _beside_one(f"members, {name}", "step", seconds)


def _with_members(config: TrainConfig, members: int) -> TrainConfig:
    return replace(config, model=replace(config.model, members=members))


def _answers(networks: dict[int, Network], batch: int) -> list[Row]:
    """The action at the current state and return, for so many environments at once."""
    modalities, T = networks[1].modalities, networks[1].config.segment_length
    question = NAMED_MASKS["rcbc"].question(modalities, T, 0)
    visible, wanted = (
        torch.from_numpy(mask).expand(batch, -1, -1) for mask in (question.visible, question.wanted)
    )
    visible = visible & (torch.arange(T) == 0)[:, None]  # no return but what is asked for now
    values = {m.name: torch.zeros(batch, T, *m.shape) for m in modalities}
    with torch.inference_mode():
        seconds = seconds_of_each(
            {str(K): lambda n=n: n(values, visible, wanted) for K, n in networks.items()},  # type: ignore[misc]
            at_least=0.5,
        )
    return _beside_one("members, cpu", f"answers to {batch}", seconds)


def _beside_one(part: str, what: str, seconds: dict[str, float]) -> list[Row]:
    one = Row(part, f"{what}, one network", seconds["1"] * 1e3, "ms")
    return [one] + [
        Row(part, f"{what}, {K} members / one network", taken / seconds["1"], "times")
        for K, taken in seconds.items()
        if K != "1"
    ]
