"""Settings of TD3, as plain data: this module imports neither torch nor numpy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from mtm.core.config_io import report
from mtm.core.errors import ConfigError, unknown
from mtm.core.validators import (
    COUNT,
    NOT_NEGATIVE,
    POSITIVE,
    SEED,
    SHARE_BELOW_ALL,
    WIDTH,
    Range,
    outside,
)

Variant: TypeAlias = Literal[
    "raw",
    "normalized",
    "state-frozen",
    "state-finetuned",
    "state-action-frozen",
    "state-action-finetuned",
    "untrained-frozen",
    "untrained-finetuned",
]

VARIANTS: tuple[str, ...] = get_args(Variant)
"""What the networks read.

- raw: actor and critics read states.
- normalized: states less the mean of the pretrained run's data, in units of their deviation.
- state-frozen: both read the encoding of the state by a pretrained run, which stays as it is.
- state-finetuned: actor and critics each have an encoder, which is trained with them.
- state-action-frozen, state-action-finetuned: the critics read the joint encoding of state and
  action, the actor that of the state.
- untrained-frozen, untrained-finetuned: as the variants of `state-`, with the run's network and
  normalisation, and weights that are drawn anew.
"""


@dataclass(frozen=True)
class TD3Config:
    """Everything that defines a TD3 run, besides the data and the pretrained run.

    Raises:
        ConfigError: Listing every fault.
    """

    variant: Variant = "raw"
    """What the networks read; see VARIANTS."""
    updates: int = 6000
    """Of actor and critics."""
    batch_size: int = 256
    """Transitions per update."""
    hidden: int = 256
    """Width of the hidden layers."""
    learning_rate: float = 3e-4
    """Adam's, for all that is trained."""
    encoder_learning_rate: float | None = None
    """For fine-tuned encoders; None: as the others."""
    discount: float = 0.99
    """Of a reward one step later."""
    target_rate: float = 0.01
    """How fast target networks follow."""
    noise: float = 0.2
    """Standard deviation of the noise on target actions, for actions in [-1, 1]."""
    noise_limit: float = 0.3
    """Where this noise is clipped."""
    with_state: bool = False
    """Put the normalised state after every encoding."""
    seed: int = 0
    """Makes weights, batches and noise."""
    evaluate_every: int = 500
    """Updates between evaluations; each is followed by a checkpoint."""
    evaluation_episodes: int = 5
    """Episodes of each evaluation."""

    def __post_init__(self) -> None:
        counts = ("updates", "batch_size", "evaluate_every", "evaluation_episodes")
        ranges = dict.fromkeys(counts, COUNT) | {
            "hidden": WIDTH,
            "seed": SEED,
            "learning_rate": POSITIVE,
            "encoder_learning_rate": POSITIVE,
            "discount": SHARE_BELOW_ALL,
            "target_rate": Range(0, 0.5, open_low=True),
            "noise": NOT_NEGATIVE,
            "noise_limit": NOT_NEGATIVE,
        }
        faults = outside(self, "", ranges)
        if self.variant not in VARIANTS:
            faults.append(unknown("variant", str(self.variant), VARIANTS))
        report(faults)


TD3_PRESETS: dict[str, TD3Config] = {
    "tiny": TD3Config(
        updates=20, batch_size=32, hidden=32, evaluate_every=10, evaluation_episodes=1
    ),
    "cpu": TD3Config(),
    "paper": TD3Config(
        updates=100_000,
        batch_size=1024,
        hidden=1024,
        learning_rate=1e-4,
        evaluate_every=1000,
        evaluation_episodes=10,
    ),
}
"""`tiny`: seconds, for tests. `cpu`: minutes on a core. `paper`: ExORL's sizes."""


def td3_preset(name: str) -> TD3Config:
    """The settings of a preset.

    Raises:
        ConfigError: There is no such preset.
    """
    if name not in TD3_PRESETS:
        raise ConfigError(unknown("preset", name, TD3_PRESETS))
    return TD3_PRESETS[name]
