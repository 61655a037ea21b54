"""What a training makes of a data set: the modalities to model, and the split."""

from __future__ import annotations

from mtm.core.config import TrainConfig
from mtm.core.errors import ConfigError, unknown
from mtm.data.returns import RETURNS, add_returns
from mtm.data.trajectories import TrajectoryDataset


def prepare(source: TrajectoryDataset, config: TrainConfig) -> TrajectoryDataset:
    """The modalities to model: those configured, else all but rewards, with returns made of them.

    Returns are not made where the data bring some of their own.

    Raises:
        DataError: A configured modality is unknown, or returns cannot be made: there are several
            modalities of role reward, or it has several numbers per step.
    """
    names = list(config.modalities)
    rewards, own = source.modalities.of_role("reward"), source.modalities.of_role("return")
    if RETURNS.name in names or (not names and rewards and not own):
        source = add_returns(source, config.returns)
    return source.select(names or [m.name for m in source.modalities if m.role != "reward"])


def split(
    prepared: TrajectoryDataset, config: TrainConfig
) -> tuple[TrajectoryDataset, TrajectoryDataset | None]:
    """Training and held-out episodes; none are held out for a fraction of 0.

    The training ones lack what `drop` and `gaps` take away. Held-out episodes stay as they are, so
    that errors can be measured on them.

    Raises:
        ConfigError: `drop` or `gaps` names a modality that is not modelled.
    """
    for name in config.drop | config.gaps:
        if name not in prepared.names:
            fault = unknown("modality in drop or gaps:", name, prepared.names)
            made = RETURNS.name in prepared.names and not config.modalities
            hint = " Returns are made of rewards first: name returns." if made else ""
            raise ConfigError(f"{fault}{hint}")
    training, held_out = prepared, None
    if config.validation_fraction > 0:
        training, held_out = prepared.split(config.validation_fraction, config.seed)
    return training.without(config.drop, config.gaps, seed=config.seed), held_out
