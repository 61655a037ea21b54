"""The agent that explores: a deterministic actor and twin critics, driven by intrinsic reward."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mtm.core.atomic_write import write_atomically
from mtm.core.errors import RunError
from mtm.research.collect.episodes import Replay, ReplayBatch
from mtm.research.collect.protorl import IntrinsicReward, Nearest, Prototypes, follow
from mtm.research.collect.recorder import Sizes
from mtm.research.perceptron import normalised_perceptron

RewardName: TypeAlias = Literal["protorl", "knn", "random"]
REWARDS: tuple[str, ...] = get_args(RewardName)

WIDTH = 256
LEARNING_RATE = 3e-4
DISCOUNT = 0.99
TARGET_RATE = 0.01
NOISE, NOISE_LIMIT = 0.2, 0.3
"""Of exploration and of the target's action, as ExORL's agents have it."""
NOVELTY_RATE = 0.01
"""How fast the running mean of the intrinsic reward follows."""
LARGEST_STATE = 10.0
"""Normalised states are clipped here."""


class Explorer(nn.Module):
    """Acts, and learns to reach states that its intrinsic reward likes.

    Actions are in [-1, 1]. States are normalised by the statistics of the replay buffer.

    Args:
        sizes: Of the environment.
        reward: `protorl` or `knn`.
        seed: Of the first weights.
        width: Of the hidden layers.
    """

    mean: Tensor
    std: Tensor
    novelty: Tensor

    def __init__(self, sizes: Sizes, reward: RewardName, seed: int, width: int = WIDTH) -> None:
        super().__init__()
        observation, action = sizes
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.actor = nn.Sequential(normalised_perceptron(observation, width, action), nn.Tanh())
            self.critics = _Critics(observation + action, width)
            self.target_critics = _Critics(observation + action, width).requires_grad_(False)
            self.intrinsic: IntrinsicReward = (
                Prototypes(observation, width=width)
                if reward == "protorl"
                else Nearest(observation)
            )
        self.target_critics.load_state_dict(self.critics.state_dict())
        self.register_buffer("mean", torch.zeros(observation))
        self.register_buffer("std", torch.ones(observation))
        self.register_buffer("novelty", torch.zeros(()))
        self._optimizers = {
            "actor": torch.optim.Adam(self.actor.parameters(), LEARNING_RATE, fused=True),
            "critics": torch.optim.Adam(self.critics.parameters(), LEARNING_RATE, fused=True),
        }
        if isinstance(self.intrinsic, Prototypes):
            self._optimizers["prototypes"] = self.intrinsic.optimizer
        self._generator = torch.Generator()

    def begin_episode(self, replay: Replay, seed: int) -> None:
        """Take new statistics; all that is drawn in the episode follows from the seed."""
        seen = replay.observations[: replay.size]
        self.mean.copy_(torch.from_numpy(seen.mean(axis=0, dtype=np.float64)))
        self.std.copy_(torch.from_numpy(seen.std(axis=0, dtype=np.float64)).clamp_min(1e-3))
        self._generator.manual_seed(seed)

    @torch.no_grad()
    def act(self, observation: NDArray[Any], rng: np.random.Generator) -> NDArray[np.float32]:
        """The actor's action with noise, (action,)."""
        state = torch.from_numpy(observation.astype(np.float32))
        action = self.actor(self._normalized(state)).numpy()
        noise = rng.standard_normal(action.shape, np.float32) * NOISE
        return np.asarray(np.clip(action + noise, -1, 1), np.float32)

    def learn(self, batch: ReplayBatch) -> float:
        """One update of everything; returns the mean intrinsic reward of the batch."""
        states, next_states = self._normalized(batch.states), self._normalized(batch.next_states)
        # Rewarded before they are learned from: a state among the known is no news to itself.
        novelty = self.intrinsic.reward(next_states)  # (B,)
        self.intrinsic.learn(states, next_states, self._generator)
        rewards = novelty / self._running_mean(novelty)
        with torch.no_grad():
            values = self.target_critics(next_states, self._noisy(self.actor(next_states)))
            wanted = rewards + DISCOUNT * batch.discounts * values.min(dim=0).values
        loss = (self.critics(states, batch.actions) - wanted).square().sum(dim=0).mean()
        self._step("critics", loss)
        # Only the actor learns from this: the critics' gradients are not needed.
        self.critics.requires_grad_(False)
        self._step("actor", -self.critics(states, self.actor(states)).min(dim=0).values.mean())
        self.critics.requires_grad_(True)
        follow(self.target_critics, self.critics, TARGET_RATE)
        return float(novelty.mean())

    def save(self, path: Path, next_episode: int) -> None:
        """Write everything that the next episode needs, and its number."""
        content = io.BytesIO()
        optimizers = {name: o.state_dict() for name, o in self._optimizers.items()}
        state = {"weights": self.state_dict(), "optimizers": optimizers}
        torch.save(state | {"next_episode": next_episode}, content)
        write_atomically(path, content.getvalue())

    def load(self, path: Path) -> int:
        """The inverse of `save`.

        Returns:
            The number of the next episode.

        Raises:
            RunError: The file is damaged.
        """
        try:
            content = torch.load(path, weights_only=True)
            self.load_state_dict(content["weights"])
            for name, optimizer in self._optimizers.items():
                optimizer.load_state_dict(content["optimizers"][name])
            return int(content["next_episode"])
        except (OSError, RuntimeError, KeyError, TypeError, ValueError, EOFError,
                pickle.UnpicklingError) as error:  # fmt: skip
            raise RunError(
                f"{path} cannot be read ({error}). Delete it to go on with a fresh agent; the "
                "episodes stay."
            ) from error

    def _step(self, name: str, loss: Tensor) -> None:
        self._optimizers[name].zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizers[name].step()

    def _normalized(self, states: Tensor) -> Tensor:
        return ((states - self.mean) / self.std).clamp(-LARGEST_STATE, LARGEST_STATE)

    def _running_mean(self, novelty: Tensor) -> Tensor:
        """What rewards are divided by, so that critics see numbers near 1 whatever the kind."""
        rate = NOVELTY_RATE if self.novelty > 0 else 1.0
        self.novelty.lerp_(novelty.mean(), rate)
        return self.novelty.clamp_min(1e-6)

    def _noisy(self, actions: Tensor) -> Tensor:
        noise = torch.randn(actions.shape, generator=self._generator) * NOISE
        return (actions + noise.clamp(-NOISE_LIMIT, NOISE_LIMIT)).clamp(-1, 1)


class _Critics(nn.Module):
    """Two independent values of a state and an action."""

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.networks = nn.ModuleList(normalised_perceptron(size, width, 1) for _ in range(2))

    def forward(self, states: Tensor, actions: Tensor) -> Tensor:
        """(B, observation) and (B, action) to (2, B)."""
        both = torch.cat([states, actions], dim=1)
        return torch.stack([network(both).squeeze(1) for network in self.networks])
