"""How large: `smoke` for tests, `cpu` for two cores and an afternoon, `paper` for GPU machines."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mtm.config import TrainConfig, preset


@dataclass(frozen=True)
class Scale:
    """The sizes of an experiment.

    Attributes:
        name: `smoke`, `cpu` or `paper`.
        preset: Of the settings that this scale changes, and of those of all other methods.
        train: Settings of MTM.
        seeds: How many, if not said otherwise.
        episodes: Of every policy and target.
        labelled: Share of episodes with actions in `heteromodal`: some 10,000 steps, as in the
            paper, of a data set of the size that the scale is meant for.
        shares: The same in `data-efficiency`.
        lengths: Segment lengths of `length`.
        threads: CPU threads of every run.
    """

    name: str
    preset: str
    train: TrainConfig
    seeds: int
    episodes: int
    labelled: float
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
        labelled=0.1,
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
        labelled=0.1,
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
        labelled=0.01,
        shares=(0.01, 0.03, 0.1, 0.3, 0.95),
        lengths=(2, 4, 8, 16, 32),
        threads=4,
    ),
}
"""By name."""
