"""What a training makes of a data set: the modalities to model, and the split."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mtm.core.config import TrainConfig
from mtm.core.errors import ConfigError, unknown
from mtm.data.returns import RETURNS, add_returns
from mtm.data.splitting import validation_and_test
from mtm.data.trajectories import TrajectoryDataset


class Split(NamedTuple):
    """The episodes of a data set, by what a run does with them.

    Attributes:
        training: Learned from.
        held_out: All others; None if none are held out.
        validation: Those of them that choose the best checkpoint and draw its curves.
        test: Those that are reported. An episode that is the only held-out one of its kind is in
            both.
    """

    training: TrajectoryDataset
    held_out: TrajectoryDataset | None = None
    validation: TrajectoryDataset | None = None
    test: TrajectoryDataset | None = None

    @property
    def in_both(self) -> int:
        """How many episodes choose checkpoints and are reported too."""
        if self.validation is None or self.test is None:
            return 0
        return len(np.intersect1d(self.validation.starts, self.test.starts))


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


def split(prepared: TrajectoryDataset, config: TrainConfig) -> Split:
    """Training, validation and test episodes; none are held out for a fraction of 0.

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
    if config.validation_fraction == 0:
        return Split(prepared.without(config.drop, config.gaps, seed=config.seed))
    training, held_out = prepared.split(config.validation_fraction, config.seed)
    parts = validation_and_test(held_out.present, held_out.starts, held_out.ends, config.seed)
    validation, test = (held_out.subset(np.flatnonzero(part)) for part in parts)
    left = training.without(config.drop, config.gaps, seed=config.seed)
    return Split(left, held_out, validation, test)
