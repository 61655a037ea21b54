"""An ensemble of probabilistic dynamics networks, as in MOPO and PETS (Chua et al., 2018).

Each network predicts the change of the state and the reward as a Gaussian, and whether the episode
ends in a terminal state. The ensemble stands by itself: it takes and gives raw units, and is saved
with all that it needs to do so.

    ensemble = fit_dynamics(data)                       (mtm.research.baselines.dynamics_fit)
    next_states, rewards, std = ensemble.predict(states, actions)
    ensemble.save("dynamics.safetensors")
    ensemble = DynamicsEnsemble.load("dynamics.safetensors")

Letters: E networks, B transitions, S features of a state, A of an action.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors
import safetensors.torch
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from mtm.core.atomic_write import write_atomically
from mtm.core.config_io import from_plain
from mtm.core.errors import DataError, RunError
from mtm.data.modalities import Modalities, Modality
from mtm.data.normalizer import Normalizer
from mtm.research.baselines.critic_settings import DynamicsConfig
from mtm.research.baselines.replay import Scaling, TransitionBatch
from mtm.runs.checkpoint import DAMAGE

LOG_VARIANCES = (-10.0, 0.5)
"""Where the learned bounds of the logarithm of the variance begin."""

BOUND_WEIGHT = 0.01
"""How strongly these bounds are pulled towards each other."""


class Prediction(NamedTuple):
    """What follows n states and actions, in raw units.

    Attributes:
        next_states: (n, *shape).
        rewards: (n,).
        std: Standard deviation of the next states, of noise and of disagreement, (n, *shape).
    """

    next_states: NDArray[np.float32]
    rewards: NDArray[np.float32]
    std: NDArray[np.float32]


class ImaginedSteps(NamedTuple):
    """One drawn step from B states, in the agent's units but for the rewards.

    Attributes:
        next_states: (B, S).
        rewards: Raw, (B, 1).
        terminated: Whether the episode is over, (B, 1).
        uncertainty: The largest norm of a network's standard deviations, raw, (B, 1).
    """

    next_states: Tensor
    rewards: Tensor
    terminated: Tensor
    uncertainty: Tensor


class _Outputs(NamedTuple):
    """Of all networks, (E, B, S + 1) and (E, B); changes and rewards in units of their own."""

    mean: Tensor
    log_variance: Tensor
    ends: Tensor


class DynamicsEnsemble(nn.Module):
    """Networks side by side: a weight has the axis of the networks first.

    Args:
        config: Settings.
        scaling: To and from the agent's units.
    """

    change_std: Tensor
    reward_mean: Tensor
    reward_std: Tensor
    elites: Tensor

    def __init__(self, config: DynamicsConfig, scaling: Scaling) -> None:
        super().__init__()
        self.config, self.scaling = config, scaling
        S, A, E = scaling.states.size, scaling.actions.size, config.networks
        sizes = [S + A, *[config.width] * config.layers, 2 * (S + 1) + 1]
        shapes = list(pairwise(sizes))
        self.weights = nn.ParameterList(_drawn(E, before, after) for before, after in shapes)
        self.biases = nn.ParameterList(torch.zeros(E, 1, after) for _, after in shapes)
        low, high = LOG_VARIANCES
        self.lowest = nn.Parameter(torch.full((S + 1,), low))
        self.highest = nn.Parameter(torch.full((S + 1,), high))
        self.register_buffer("change_std", torch.ones(S))
        self.register_buffer("reward_mean", torch.zeros(()))
        self.register_buffer("reward_std", torch.ones(()))
        self.register_buffer("elites", torch.arange(config.elites))

    def forward(self, inputs: Tensor) -> _Outputs:
        """States and actions side by side, (B, S + A) for all networks, or (E, B, S + A)."""
        E = self.config.networks
        x = inputs.expand(E, *inputs.shape) if inputs.ndim == 2 else inputs
        last = len(self.weights) - 1
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = torch.baddbmm(bias, x, weight)
            x = F.silu(x) if i < last else x
        size = (x.shape[-1] - 1) // 2
        mean, log_variance, ends = torch.split_with_sizes(x, [size, size, 1], dim=-1)
        log_variance = self.highest - F.softplus(self.highest - log_variance)
        log_variance = self.lowest + F.softplus(log_variance - self.lowest)
        return _Outputs(mean, log_variance, ends.squeeze(-1))

    def measure(self, batch: TransitionBatch) -> None:
        """Take the units of changes and rewards from these transitions, as many as there are."""
        goes_on = ~batch.terminated.squeeze(1)
        if int(goes_on.sum()) > 1:
            std = (batch.next_states - batch.states)[goes_on].std(dim=0)
            self.change_std.copy_(torch.where(std > 0, std, 1.0))
        self.reward_mean.copy_(batch.rewards.mean())
        std = batch.rewards.std() if len(batch.rewards) > 1 else torch.ones(())
        self.reward_std.copy_(torch.where(std > 0, std, 1.0))

    def loss(self, batch: TransitionBatch) -> Tensor:
        """The negative log likelihood of transitions, summed over the networks.

        Args:
            batch: Of each network its own, (E * B, ...), network by network. What follows a
                terminal step is not known and does not count.
        """
        E = self.config.networks
        found = self(_pairs(batch).view(E, -1, self.weights[0].shape[1]))
        truth, known = (x.view(E, -1, x.shape[-1]) for x in self._targets(batch))
        errors = (found.mean - truth).square() * torch.exp(-found.log_variance)
        likelihood = torch.where(known, errors + found.log_variance, 0.0).sum(dim=(1, 2))
        likelihood = likelihood / known.sum(dim=(1, 2)).clamp(min=1)
        ended = batch.terminated.view(E, -1).float()
        ends = F.binary_cross_entropy_with_logits(found.ends, ended, reduction="none").mean(dim=1)
        bounds = BOUND_WEIGHT * (self.highest.sum() - self.lowest.sum())
        weights = torch.stack([w.square().sum() for w in self.weights]).sum()
        return likelihood.sum() + ends.sum() + bounds + self.config.weight_decay / 2 * weights

    @torch.no_grad()
    def choose_elites(self, held_out: TransitionBatch) -> None:
        """Let those networks predict that have the least error on unseen transitions."""
        truth, known = self._targets(held_out)
        errors = (self(_pairs(held_out)).mean - truth).square()
        means = torch.where(known, errors, 0.0).sum(dim=(1, 2)) / known.sum().clamp(min=1)
        self.elites.copy_(means.argsort()[: self.config.elites])

    @torch.no_grad()
    def imagine(self, states: Tensor, actions: Tensor) -> ImaginedSteps:
        """Draw what follows by torch's generator, of one of the elites for each row."""
        found = self(torch.cat([states, actions], dim=1))
        rows = torch.arange(len(states), device=states.device)
        chosen = self.elites[torch.randint(len(self.elites), rows.shape, device=states.device)]
        std = (found.log_variance / 2).exp()  # (E, B, S + 1)
        drawn = found.mean[chosen, rows] + std[chosen, rows] * torch.randn_like(std[0])
        ends = torch.sigmoid(found.ends[chosen, rows]).unsqueeze(1)
        return ImaginedSteps(
            states + drawn[:, :-1] * self.change_std,
            self._raw_rewards(drawn[:, -1:]),
            ends > torch.rand_like(ends),
            (std * self._raw_units()).norm(dim=2).amax(dim=0).unsqueeze(1),
        )

    @torch.inference_mode()
    def predict(self, states: NDArray[Any], actions: NDArray[Any]) -> Prediction:
        """What follows n states and actions, (n, *shape) each, by the mean of the elites.

        Raises:
            DataError: The arrays do not fit the ensemble.
        """
        scaling = self.scaling
        _check(states, scaling.states)
        _check(actions, scaling.actions)
        if len(states) != len(actions):
            raise DataError(f"{len(states)} states need as many actions, got {len(actions)}.")
        before = scaling.scale_states(states).to(self.lowest.device)
        acted = scaling.scale_actions(actions).to(self.lowest.device)
        found = self(torch.cat([before, acted], dim=1))
        means, variances = found.mean[self.elites], found.log_variance[self.elites].exp()
        mean = means.mean(dim=0)  # (n, S + 1)
        std = (variances.mean(dim=0) + means.var(dim=0, correction=0)).sqrt() * self._raw_units()
        after = (before + mean[:, :-1] * self.change_std).cpu().view(np.shape(states))
        return Prediction(
            scaling.normalizer.denormalize(scaling.states.name, after).numpy(),
            self._raw_rewards(mean[:, -1]).cpu().numpy(),
            std[:, :-1].cpu().numpy().reshape(np.shape(states)),
        )

    def save(self, file: str | Path) -> None:
        """Write the ensemble, whole or not at all."""
        described = {
            "config": asdict(self.config),
            "modalities": [m.to_json() for m in (self.scaling.states, self.scaling.actions)],
            "normalizer": self.scaling.normalizer.to_json(),
        }
        weights = {name: tensor.contiguous() for name, tensor in self.state_dict().items()}
        metadata = {"dynamics": json.dumps(described)}
        write_atomically(Path(file), safetensors.torch.save(weights, metadata))

    @classmethod
    def load(cls, file: str | Path) -> DynamicsEnsemble:
        """Read an ensemble; the data are not needed.

        Raises:
            RunError: The file is missing, damaged, or holds something else.
        """
        try:
            with safetensors.safe_open(str(file), framework="pt") as opened:
                plain = json.loads(opened.metadata()["dynamics"])
            states, actions = (Modality.from_json(m) for m in plain["modalities"])
            normalizer = Normalizer.from_json(plain["normalizer"], (states, actions))
            scaling = Scaling.of(Modalities((states, actions)), normalizer)
            config = from_plain(plain["config"], DynamicsConfig())
            with torch.random.fork_rng(devices=[]):  # the first weights are drawn, and replaced
                ensemble = cls(config, scaling)
            ensemble.load_state_dict(safetensors.torch.load_file(str(file)))
        except (*DAMAGE, RuntimeError) as error:
            raise RunError(f"{file} holds no readable dynamics ensemble: {error}") from error
        return ensemble.eval()

    def _targets(self, batch: TransitionBatch) -> tuple[Tensor, Tensor]:
        """Changes and rewards in units of their own, and which are known, (B, S + 1) each."""
        change = (batch.next_states - batch.states) / self.change_std
        reward = (batch.rewards - self.reward_mean) / self.reward_std
        known = torch.cat([(~batch.terminated).expand_as(change), torch.ones_like(reward) > 0], 1)
        return torch.cat([change, reward], dim=1), known

    def _raw_units(self) -> Tensor:
        """The sizes of what the networks predict, (S + 1,)."""
        std = self.scaling.normalizer.statistics[self.scaling.states.name].std.reshape(-1)
        states = torch.as_tensor(std, device=self.change_std.device) * self.change_std
        return torch.cat([states, self.reward_std.view(1)])

    def _raw_rewards(self, rewards: Tensor) -> Tensor:
        return rewards * self.reward_std + self.reward_mean


def _pairs(batch: TransitionBatch) -> Tensor:
    return torch.cat([batch.states, batch.actions], dim=1)


def _drawn(networks: int, inputs: int, outputs: int) -> Tensor:
    """Weights, (E, inputs, outputs), as the authors draw them."""
    weight = torch.empty(networks, inputs, outputs)
    return nn.init.trunc_normal_(weight, std=1 / (2 * inputs**0.5))


def _check(values: NDArray[Any], modality: Modality) -> None:
    if np.shape(values)[1:] != modality.shape:
        raise DataError(
            f"{modality.name} must be (n, {', '.join(map(str, modality.shape))}), "
            f"got {np.shape(values)}."
        )
