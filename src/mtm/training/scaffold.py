"""One scaffold for every trainer: it loops, logs, measures, saves, and stops when asked to.

A `Trainer` holds what is its own: the mathematics of a step, what is measured on the way, and how
both are told. Its step k is a function of k alone, so a training that was stopped and resumed is
the same to the bit as one that was not. The directory is opened by `mtm.runs.directory.opened`.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import nn

from mtm.core.errors import ConfigError, MTMError, RunError
from mtm.core.progress import StepProgress
from mtm.core.terminal import PlainConsole
from mtm.runs import checkpoint
from mtm.runs.checkpoint import State
from mtm.training.trackers import Tracker
from mtm.training.weight_average import WeightAverage

if TYPE_CHECKING:
    from lightning_fabric import Fabric

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Schedule:
    """When a training does what, in steps. All is done after the last one.

    Attributes:
        steps: In all.
        log_every: From one row of metrics to the next.
        measure_every: From one measurement to the next.
        save_every: From one checkpoint to the next.
        keep: How many of the newest checkpoints stay; the best one does anyway.
    """

    steps: int
    log_every: int
    measure_every: int
    save_every: int
    keep: int


@dataclass(frozen=True)
class Look:
    """What the steps since the last look came to.

    Attributes:
        metrics: For the row.
        loss: Finite as long as all is well.
        gradient_norm: Likewise; a gradient that is not finite spoils the weights before any loss
            shows it.
    """

    metrics: dict[str, float]
    loss: float
    gradient_norm: float


class Trainer(ABC):
    """What the scaffold asks of a training.

    Attributes:
        schedule: When to do what.
        network: Its state is all that training changes, besides the optimizers'.
        optimizers: What they have averaged is saved and restored too.
        average: Of the network's last weights, which is measured and saved in their place.
    """

    title = "training"
    """What a person sees on the left of the bar."""
    cure = "a lower learning rate"
    """What to train with instead where the loss is not finite."""
    measured_as = ""
    """Put before the names of what is measured, in a row."""
    counts_steps_only = False
    """Whether the time between steps (measuring, saving) is not part of the training's seconds."""

    schedule: Schedule
    network: nn.Module
    optimizers: Sequence[torch.optim.Optimizer]
    average: WeightAverage | None = None

    @abstractmethod
    def step(self, step: int) -> None:
        """Take an optimizer step, counted from 0."""

    @abstractmethod
    def look(self, seconds: float) -> Look:
        """What the steps since the last look came to; `seconds` is the time they took."""

    @abstractmethod
    def trackers(self, out: Path, resume_after: int) -> list[Tracker]:
        """Where rows of metrics go; what they hold of later steps than this is dropped."""

    @abstractmethod
    def status(self, row: Mapping[str, float], rate: float) -> str | None:
        """A row in short, beside the bar; `rate` is steps per second. None: as before."""

    def measure(self, step: int) -> dict[str, float]:
        """How good the network is after so many steps, by other means than its loss."""
        return {}

    def notice(self, measured: Mapping[str, float]) -> str | None:
        """A line that says what was measured, if it deserves one."""
        return None

    def close(self) -> None:  # noqa: B027 - most have nothing to let go of
        """Let go of what the steps needed."""


class Clock:
    """Counts the seconds of a training: all of them, and those of its steps alone.

    Args:
        seconds: Of earlier sittings.
    """

    def __init__(self, seconds: float) -> None:
        self._began = time.monotonic() - seconds
        self._resumed = time.monotonic()
        self.of_steps = seconds

    @property
    def whole(self) -> float:
        """Seconds from the first step on, whatever was done."""
        return time.monotonic() - self._began

    def lap(self) -> float:
        """Seconds of the steps since `resume`."""
        seconds = time.monotonic() - self._resumed
        self.of_steps += seconds
        return seconds

    def resume(self) -> None:
        """The steps go on."""
        self._resumed = time.monotonic()


class Loop:
    """Takes the steps of a training in a directory that holds its description.

    Args:
        trainer: What is trained.
        out: The directory.
        resume: Start from the last checkpoint.
        silent: Show nothing.
        spent: Seconds of preparation that count, unless a checkpoint has counted them.
        fabric: Of the processes that train together; None: this one alone.
    """

    def __init__(
        self,
        trainer: Trainer,
        out: Path,
        *,
        resume: bool,
        silent: bool,
        spent: float = 0.0,
        fabric: Fabric | None = None,
    ) -> None:
        self.trainer, self.folder, self.fabric = trainer, out / "checkpoints", fabric
        self.is_first = fabric is None or fabric.is_global_zero
        self.console = PlainConsole(quiet=silent or not self.is_first)
        state = State(0, spent, {})
        if self.is_first:
            checkpoint.remove_leftovers(self.folder)
        if resume and checkpoint.steps(self.folder):  # none: it was stopped before its first one
            saved = checkpoint.restore(self.folder, trainer.network, *trainer.optimizers)
            state = saved.state
            if trainer.average is not None:
                trainer.average.restore(state.step, saved.optimizer)
        self.start = state.step
        self.trackers = trainer.trackers(out, state.step) if self.is_first else []
        self.clock = Clock(state.seconds)

    def run(self, stop_at: int | None = None) -> None:
        """Take the remaining steps, up to `stop_at`; a stop signal saves and ends early."""
        trainer, schedule = self.trainer, self.trainer.schedule
        last = schedule.steps if stop_at is None else min(stop_at, schedule.steps)
        with ExitStack() as stack:
            for let_go in (*(tracker.close for tracker in self.trackers), trainer.close):
                stack.callback(let_go)
            stack.enter_context(_telling_lost_processes(self.fabric))
            stop_requested = stack.enter_context(_stop_signals(self.fabric, schedule.log_every))
            progress = StepProgress(trainer.title, last, self.start, self.console)
            stack.enter_context(progress)
            self.clock.resume()
            for step in range(self.start + 1, last + 1):
                trainer.step(step - 1)
                if trainer.average is not None:
                    trainer.average.add(step)
                progress.at(step)
                stopping = stop_requested(step)
                is_last = step == last
                is_measure_step = is_last or step % schedule.measure_every == 0
                is_save_step = is_last or stopping or step % schedule.save_every == 0
                # Logging looks whether all is finite, so that what is saved is sound.
                is_log_step = is_measure_step or is_save_step or step % schedule.log_every == 0
                if not is_log_step:
                    continue
                look = trainer.look(self.clock.lap())  # first: the speed is that of the steps alone
                self._check_finite(step, look)
                note = partial(self._note, step, look, progress, is_measure_step, is_save_step)
                on_first_process(self.fabric, note)
                self.clock.resume()
                if stopping and not is_last:
                    progress.say(f"stopped and saved at step {step:,}; continue with --resume")
                    break

    def _note(
        self, step: int, look: Look, progress: StepProgress, measure: bool, save: bool
    ) -> None:
        """Measure, hand a row to the trackers, and save."""
        with self._answering():
            measured = self.trainer.measure(step) if measure else {}
        self._check_held_out(step, measured)
        notice = self.trainer.notice(measured) if measured else None
        if notice is not None:
            progress.say(f"step {step:,}  {notice}")
        row = look.metrics | {"seconds": self._seconds}
        row |= {f"{self.trainer.measured_as}{name}": value for name, value in measured.items()}
        try:
            for tracker in self.trackers:
                tracker.log(step, row)
        except OSError as error:
            raise self._could_not_log(step, measured, error) from error
        progress.at(step, self.trainer.status(row, progress.rate(step)))
        if save:
            self._save(step, measured)

    def _could_not_log(self, step: int, measured: dict[str, float], error: OSError) -> RunError:
        """What to tell where metrics cannot be written: the weights may still find room."""
        try:
            self._save(step, measured)
        except RunError as also:
            return RunError(f"the metrics of step {step} could not be written: {error}; {also}")
        return RunError(
            f"the metrics of step {step} could not be written: {error}. The checkpoint of this "
            "step is saved. Make room, then continue with --resume."
        )

    def _check_finite(self, step: int, look: Look) -> None:
        """Raise a `RunError` unless the weights after a step are fit to be saved."""
        if math.isfinite(look.loss) and math.isfinite(look.gradient_norm):
            return
        spoilt = [n for n, v in look.metrics.items() if "/" in n and not math.isfinite(v)]
        of = f", {', '.join(spoilt)} too" if spoilt else ""
        raise RunError(
            f"the loss became {look.loss}{of}, the norm of its gradient {look.gradient_norm}, by "
            f"step {step}. {self._kept()}; train again with {self.trainer.cure}."
        )

    def _check_held_out(self, step: int, measured: Mapping[str, float]) -> None:
        """Raise a `RunError` if the held-out loss is no number; it says of which modality."""
        if math.isfinite(measured.get("loss", 0.0)):
            return
        spoilt = [name for name, value in measured.items() if not math.isfinite(value)]
        raise RunError(
            f"the held-out loss became {measured['loss']} by step {step}, of {', '.join(spoilt)}. "
            f"{self._kept()}; look at the held-out episodes (mtm data validate), or train again "
            f"with {self.trainer.cure}."
        )

    def _kept(self) -> str:
        """What there is to go back to, after a look at it."""
        step = checkpoint.newest_sound(self.folder)
        return (
            "Nothing was saved yet" if step is None else f"The checkpoint of step {step} is sound"
        )

    def _save(self, step: int, measured: dict[str, float]) -> None:
        beside = checkpoint.optimizer_tensors(*self.trainer.optimizers)
        if self.trainer.average is not None:
            beside |= self.trainer.average.tensors()
        state = State(step, self._seconds, measured)
        with self._answering():
            checkpoint.save(self.folder, state, self.trainer.network.state_dict(), beside)
        checkpoint.prune(self.folder, self.trainer.schedule.keep)

    def _answering(self) -> AbstractContextManager[None]:
        """The network has the weights that the run is to answer with."""
        average = self.trainer.average
        return nullcontext() if average is None else average.in_place()

    @property
    def _seconds(self) -> float:
        return self.clock.of_steps if self.trainer.counts_steps_only else self.clock.whole


def check_stop_at(step: int | None) -> None:
    """Raise a `ConfigError` if a sitting shall end before its first step."""
    if step is not None and step < 1:
        raise ConfigError(f"stop_at must be at least 1, got {step}.")


def on_first_process(fabric: Fabric | None, action: Callable[[], _Result]) -> _Result:
    """Do something on one process and give all the result; a failure fails all of them."""
    if fabric is None or fabric.world_size == 1:
        return action()
    outcome: tuple[_Result | None, MTMError | None] = (None, None)
    if fabric.is_global_zero:
        try:
            outcome = (action(), None)
        except MTMError as error:
            outcome = (None, error)
    result, failure = fabric.broadcast(outcome)
    if failure is not None:
        raise failure
    return result  # type: ignore[return-value]


@contextmanager
def _telling_lost_processes(fabric: Fabric | None) -> Iterator[None]:
    """Tell as an error of ours that another process of the training, or its machine, is gone."""
    try:
        yield
    except MTMError:
        raise
    except RuntimeError as error:
        if fabric is None or fabric.world_size == 1 or not _is_of_the_network(error):
            raise
        raise RunError(
            f"another process of this training was lost, or cannot be reached: {error}. What was "
            "saved is intact. Start all of them again with --resume."
        ) from error


def _is_of_the_network(error: RuntimeError) -> bool:
    """Whether an error is of the processes' talk; gloo has no class of its own for it."""
    return isinstance(error, torch.distributed.DistError) or "gloo" in str(error).lower()


@contextmanager
def _stop_signals(fabric: Fabric | None, every: int) -> Iterator[Callable[[int], bool]]:
    """Turn the first SIGINT or SIGTERM into a request; the second one ends at once.

    Several processes must agree on the step to stop at; they compare notes every so many steps.
    """
    received = threading.Event()
    before: dict[signal.Signals, Any] = {}

    def on_signal(number: int, frame: FrameType | None) -> None:
        if received.is_set():
            raise KeyboardInterrupt
        received.set()

    def requested(step: int) -> bool:
        if fabric is None or fabric.world_size == 1:
            return received.is_set()
        if step % every:
            return False
        flag = torch.tensor(float(received.is_set()), device=fabric.device)
        return bool(fabric.all_reduce(flag, reduce_op="sum") > 0)  # type: ignore[operator]

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, on_signal)
    try:
        yield requested
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
