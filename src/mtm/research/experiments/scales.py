"""How large: `smoke` for tests, `cpu` for two cores and an afternoon, `paper` for GPU machines."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mtm.core.config import TrainConfig, preset


@dataclass(frozen=True)
class Scale:
    """The sizes of an experiment.

    Attributes:
        name: `smoke`, `cpu` or `paper`.
        preset: Of the settings that this scale changes, and of those of all other methods.
        train: Settings of MTM.
        seeds: How many, if not said otherwise.
        episodes: Of every policy and target.
        shares: Of the episodes that have actions, in `data-efficiency`; `heteromodal` takes the one
            that comes nearest to the paper's number of steps.
        lengths: Segment lengths of `length`.
        threads: CPU threads of every run.
    """

    name: str
    preset: str
    train: TrainConfig
    seeds: int
    episodes: int
    shares: tuple[float, ...]
    lengths: tuple[int, ...]
    threads: int


def _smoke() -> TrainConfig:
    return replace(preset("tiny"), steps=20, validate_every=10, checkpoint_every=10, log_every=5)


SCALES = {
    "smoke": Scale(
        name="smoke",
        preset="tiny",
        train=_smoke(),
        seeds=1,
        episodes=1,
        shares=(0.1,),
        lengths=(2, 4),
        threads=1,
    ),
    "cpu": Scale(
        name="cpu",
        preset="cpu",
        train=preset("cpu"),
        seeds=2,
        episodes=20,
        shares=(0.01, 0.03, 0.1),
        lengths=(2, 4, 8),
        threads=1,
    ),
    "paper": Scale(
        name="paper",
        preset="paper",
        train=preset("paper"),
        seeds=4,
        episodes=20,
        shares=(0.01, 0.03, 0.1, 0.3, 0.95),
        lengths=(2, 4, 8, 16, 32),
        threads=4,
    ),
}
"""By name."""
