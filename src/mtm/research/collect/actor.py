"""The policy of a SAC agent, made from nothing but its weights.

Stable-Baselines3's own loader unpickles parts of a `.zip`, which can run anything that its author
put there. Here only the tensors are read, and the few plain settings that say how to use them.
"""

from __future__ import annotations

import json
import pickle
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mtm.core.errors import DataError

if TYPE_CHECKING:
    from mtm.control.environments import Environment

LOG_STD_RANGE = (-20.0, 2.0)
"""Limits of SAC's log standard deviation."""


class Actor:
    """A Gaussian squashed by tanh; mean and deviation are a ReLU network of the observation.

    Args:
        weights: SAC's actor: `latent_pi.N.*`, `mu.*`, `log_std.*`.
        env: Says what the actions range over.

    Raises:
        DataError: The weights are not of such a network, or do not fit the environment.
    """

    def __init__(self, weights: Mapping[str, Tensor], env: Environment) -> None:
        try:
            self._hidden = [
                _layer(weights, name.removesuffix(".weight"))
                for name in sorted(weights, key=_place)
                if name.startswith("latent_pi.") and name.endswith(".weight")
            ]
            self._mean, self._log_std = _layer(weights, "mu"), _layer(weights, "log_std")
        except KeyError as error:
            raise DataError(
                f"the policy has no {error}: it is not SAC's MlpPolicy without gSDE."
            ) from error
        layers = [*self._hidden, self._mean]
        offered = (layers[0][0].shape[0], layers[-1][0].shape[1])
        wanted = (*(env.observation_space.shape or ()), *(env.action_space.shape or ()))
        if offered != wanted:
            raise DataError(
                f"the policy takes {offered[0]} numbers and gives {offered[1]}; the environment "
                f"has observations and actions of {' and '.join(map(str, wanted))}."
            )
        space: Any = env.action_space
        self._low, self._high = space.low, space.high

    def act(
        self, observation: NDArray[Any], rng: np.random.Generator | None = None
    ) -> NDArray[np.float32]:
        """The action for one observation: drawn with `rng`, or the most likely if None."""
        x = observation.astype(np.float32)
        for weight, bias in self._hidden:
            x = np.maximum(x @ weight + bias, 0)
        action = x @ self._mean[0] + self._mean[1]
        if rng is not None:
            log_std = np.clip(x @ self._log_std[0] + self._log_std[1], *LOG_STD_RANGE)
            action = action + np.exp(log_std) * rng.standard_normal(len(action), np.float32)
        share = 0.5 * (np.tanh(action) + 1)  # of the way from low to high
        result: NDArray[np.float32] = self._low + share * (self._high - self._low)
        return result


def read_policy(path: Path) -> dict[str, Tensor]:
    """The actor's weights in a `.zip` that Stable-Baselines3's `SAC.save` wrote; never unpickles.

    Raises:
        DataError: The file cannot be read, or holds another kind of policy.
    """
    try:
        with zipfile.ZipFile(path) as file:
            settings = json.loads(file.read("data"))
            with file.open("policy.pth") as weights, warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of odd contents, which are refused below anyway
                tensors: dict[str, Tensor] = torch.load(
                    weights, map_location="cpu", weights_only=True
                )
        options = settings["policy_kwargs"]
        uses_gsde = bool(settings.get("use_sde"))
    except (OSError, KeyError, ValueError, RuntimeError, TypeError, AttributeError,
            zipfile.BadZipFile, pickle.UnpicklingError, EOFError) as error:  # fmt: skip
        raise DataError(
            f"{path} cannot be read as a policy ({error}). Give the .zip that SAC.save() of "
            "Stable-Baselines3 wrote."
        ) from error
    activation = str(options.get("activation_fn", "ReLU"))
    if uses_gsde or "ReLU" not in activation or "features_extractor_class" in options:
        raise DataError(
            f"{path}: only SAC's MlpPolicy with ReLU and without gSDE can be used; this one has "
            f"policy_kwargs {sorted(options)} and use_sde={uses_gsde}."
        )
    actor = {n.removeprefix("actor."): t for n, t in tensors.items() if n.startswith("actor.")}
    if not actor:
        raise DataError(f"{path} holds no actor; only policies of SAC can be used.")
    return actor


def _layer(weights: Mapping[str, Tensor], name: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Matrix (in, out) and bias of a linear layer."""
    matrix, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
    return matrix.numpy().astype(np.float32).T.copy(), bias.numpy().astype(np.float32)


def _place(name: str) -> int:
    """Where a layer stands in the network: `latent_pi.2.weight` -> 2."""
    middle = name.split(".")[1]
    return int(middle) if middle.isdigit() else -1
