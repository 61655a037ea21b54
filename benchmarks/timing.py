"""How things are timed."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

TURN = "your turn"
"""What a program says that waits to compute."""


class Turn(NamedTuple):
    """Seconds of a turn of a training loop, and of the step within it."""

    whole: float
    step: float


@dataclass(frozen=True)
class Row:
    """One measured number.

    Attributes:
        asked: What this project asks of itself here; empty where it asks nothing.
    """

    part: str
    what: str
    value: float
    unit: str
    asked: str = ""


def seconds_per_call(
    call: Callable[[], object], *, at_least: float = 1.5, warmup: int = 2
) -> float:
    """The median over calls that take `at_least` seconds together."""
    return seconds_of_each({"": call}, at_least=at_least, warmup=warmup)[""]


def seconds_of_each(
    calls: Mapping[str, Callable[[], object]],
    *,
    at_least: float,
    repeats: int = 3,
    warmup: int = 2,
    average: Callable[[list[float]], float] = statistics.median,
) -> dict[str, float]:
    """The time of each call, taken in turns, so that all meet the same state of the machine.

    Args:
        calls: What to time, by name.
        at_least: Seconds that each is given together.
        repeats: How often each is called at least.
        warmup: Calls before, which do not count.
        average: The median, or the mean where the work itself differs from call to call.
    """
    for _ in range(warmup):
        for call in calls.values():
            call()
    times: dict[str, list[float]] = {name: [] for name in calls}
    while any(sum(taken) < at_least or len(taken) < repeats for taken in times.values()):
        for name, call in calls.items():
            began = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - began)
    return {name: average(taken) for name, taken in times.items()}


def seconds_in_turns(
    programs: Mapping[str, Sequence[object]], steps: int, warmup: int
) -> dict[str, Turn]:
    """The mean time of a turn of programs that run side by side and compute in turns.

    A shared machine is faster at one time than at another; in turns, all meet the same.

    Args:
        programs: Name -> module of this package and its words; each turn of it begins with
            `take_turn`.
        steps: Turns of each that count.
        warmup: Turns of each before. It takes some until a program has all the memory that it will
            use, and memory that is used for the first time is slow.
    """
    with ExitStack() as stack:
        running = {}
        for name, (module, *words) in programs.items():
            program = subprocess.Popen(
                _command(module, words), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            stack.enter_context(program)
            stack.callback(program.kill)
            _until_its_turn(program)
            running[name] = program
        turns: dict[str, list[Turn]] = {name: [] for name in running}
        for _ in range(warmup + steps):
            for name, program in running.items():
                began = time.perf_counter()
                print(file=program.stdin, flush=True)
                step = _until_its_turn(program)
                turns[name].append(Turn(time.perf_counter() - began, step))
    return {
        name: Turn(*map(statistics.fmean, zip(*taken[warmup:], strict=True)))
        for name, taken in turns.items()
    }


def take_turn(step: float) -> None:
    """Wait until `seconds_in_turns` wants the next turn of this program.

    Args:
        step: Seconds of the last turn's step proper, without its data, masks and logging.
    """
    print(TURN, step, flush=True)
    sys.stdin.readline()


def result_of(module: str, *words: object) -> dict[str, Any]:
    """What a module of this package prints as JSON, in a process of its own."""
    done = subprocess.run(_command(module, words), check=True, stdout=subprocess.PIPE, text=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def peak_flops(size: int = 2048) -> float:
    """Floating-point operations per second of a large matrix product: this machine's limit."""
    a, b = torch.randn(size, size), torch.randn(size, size)
    return 2 * size**3 / seconds_per_call(lambda: a @ b)


def _command(module: object, words: Sequence[object]) -> list[str]:
    return [sys.executable, "-m", f"benchmarks.{module}", *map(str, words)]


def _until_its_turn(program: subprocess.Popen[str]) -> float:
    """Wait until a program wants to go on; returns the seconds of its last step."""
    assert program.stdout is not None
    for line in program.stdout:
        if line.startswith(TURN):
            return float(line.removeprefix(TURN))
    raise RuntimeError(f"{program.args} ended with exit code {program.wait()}.")
