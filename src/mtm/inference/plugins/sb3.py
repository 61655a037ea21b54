"""A run's encoder as a features extractor of Stable-Baselines3.

    policy_kwargs = {
        "features_extractor_class": MTMFeatures,
        "features_extractor_kwargs": {"run": "runs/hopper"},
    }
    agent = SAC("MlpPolicy", env, policy_kwargs=policy_kwargs)

Actor, critic and target networks make one each, so every network has its own copy.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from mtm.core.errors import ConfigError, require
from mtm.inference.encoders import StateEncoder

require("stable_baselines3", extra="collect")

from stable_baselines3.common.torch_layers import BaseFeaturesExtractor  # noqa: E402

if TYPE_CHECKING:
    from gymnasium import spaces


class MTMFeatures(BaseFeaturesExtractor):
    """Encodes observations with a pretrained run.

    Args:
        observation_space: Of the environment; Stable-Baselines3 passes it.
        run: The run's directory.
        trainable: Whether the agent trains the encoder too.
        with_state: Whether the normalised observation is put after the encoding.
        projection: Map the encoding linearly to so many features, if given.

    Raises:
        ConfigError: The observations are not the states that the run was trained on.
        RunError: The directory holds no readable run.
    """

    def __init__(
        self,
        observation_space: spaces.Space,  # type: ignore[type-arg]
        run: str | Path,
        trainable: bool = False,
        with_state: bool = False,
        projection: int | None = None,
    ) -> None:
        encoder = StateEncoder(
            run, trainable=trainable, with_state=with_state, projection=projection
        )
        wanted = encoder.modalities[0]
        if observation_space.shape != wanted.shape:
            raise ConfigError(
                f"the environment's observations have shape {observation_space.shape}, the run "
                f"{run} was trained on {wanted.name} of shape {wanted.shape}."
            )
        super().__init__(observation_space, encoder.features)
        self.encoder = encoder

    def forward(self, observations: Tensor) -> Tensor:
        """(B, *shape) to (B, features)."""
        features: Tensor = self.encoder(observations)
        return features
