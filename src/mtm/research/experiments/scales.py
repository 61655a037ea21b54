"""How large: `smoke` for tests, `cpu` for two cores and an afternoon, `paper` for GPU machines."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mtm.core.config import TrainConfig, preset
from mtm.research.experiments.methods import FILLERS


@dataclass(frozen=True)
class Scale:
    """The sizes of an experiment.

    Attributes:
        name: `smoke`, `cpu` or `paper`.
        preset: Of the settings that this scale changes, and of those of all other methods.
        train: Settings of MTM.
        seeds: How many, if not said otherwise, of MTM and the cheap rivals.
        slow_seeds: The same of the methods in `SLOW`.
        episodes: Of every policy, at the target `auto`.
        sweep_episodes: Of every other target; what is best of them is marked as chosen anyway.
        long_updates: Of the agents in `LONG`, once more with so many updates, if that is asked for.
        long: Whether it is.
        shares: Of the episodes that have actions, in `data-efficiency`; `heteromodal` takes the one
            that comes nearest to the paper's number of steps.
        lengths: Segment lengths of `length`.
        threads: CPU threads of every run.
    """

    name: str
    preset: str
    train: TrainConfig
    seeds: int
    slow_seeds: int
    episodes: int
    sweep_episodes: int
    long_updates: int
    shares: tuple[float, ...]
    lengths: tuple[int, ...]
    threads: int
    long: bool = False

    def seeds_of(self, method: str) -> int:
        """How many seeds a method has."""
        return self.slow_seeds if method in SLOW else self.seeds


SLOW = (
    *("s-mtm", "dt", "tt", "iql", "cql", "td3_bc", "rebrac", "mopo", "td3", "ensemble"),
    *FILLERS,
)
"""Methods that have fewer seeds: all but MTM and the perceptrons, and all that fill gaps."""

LONG = ("iql", "cql", "td3_bc", "rebrac")
"""Agents whose publications take a million updates, far more than fit into MTM's time."""


def _smoke() -> TrainConfig:
    return replace(preset("tiny"), steps=20, validate_every=10, checkpoint_every=10, log_every=5)


SCALES = {
    "smoke": Scale(
        name="smoke",
        preset="tiny",
        train=_smoke(),
        seeds=1,
        slow_seeds=1,
        episodes=1,
        sweep_episodes=1,
        long_updates=80,
        long=True,
        shares=(0.1,),
        lengths=(2, 4),
        threads=1,
    ),
    "cpu": Scale(
        name="cpu",
        preset="cpu",
        train=preset("cpu"),
        seeds=5,
        slow_seeds=3,
        episodes=100,
        sweep_episodes=20,
        long_updates=100_000,
        shares=(0.01, 0.03, 0.1),
        lengths=(2, 4, 8),
        threads=1,
    ),
    "paper": Scale(
        name="paper",
        preset="paper",
        train=preset("paper"),
        seeds=5,
        slow_seeds=3,
        episodes=100,
        sweep_episodes=20,
        long_updates=1_000_000,
        shares=(0.01, 0.03, 0.1, 0.3, 0.95),
        lengths=(2, 4, 8, 16, 32),
        threads=4,
    ),
}
"""By name."""
