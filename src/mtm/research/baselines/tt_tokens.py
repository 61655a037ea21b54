"""Steps as tokens, for the Trajectory Transformer: numbers become bins of equally many values.

A step has one token per number, in the order state, action, reward, return: what is still to earn
after the step, discounted. Beside the bins there are two tokens, `over` for what comes after a
terminal state, and `unknown` for what the data lack.

Letters: N steps of the data, J tokens of a step.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mtm.core.errors import DataError
from mtm.data.modalities import BoolArray, IntArray
from mtm.data.returns import return_to_go, reward_of
from mtm.data.terminations import terminal_endings
from mtm.data.trajectories import TrajectoryDataset
from mtm.research.baselines.imitation_settings import TTConfig
from mtm.research.baselines.replay import Scaling


class Bins(nn.Module):
    """The edges of the bins of each number, which are part of a checkpoint.

    Args:
        numbers: J.
        count: Bins of each.
    """

    edges: Tensor

    def __init__(self, numbers: int, count: int) -> None:
        super().__init__()
        self.count, self.over, self.unknown = count, count, count + 1
        self.register_buffer("edges", torch.zeros(numbers, count + 1, dtype=torch.float64))

    @torch.no_grad()
    def measure(self, values: NDArray[Any], known: BoolArray) -> None:
        """Let equally many of the known values be in each bin, (N, J) both.

        Raises:
            DataError: Of some number, no value is known.
        """
        shares = np.linspace(0, 1, self.count + 1)
        for j in range(len(self.edges)):
            column = values[known[:, j], j]
            if not len(column):
                raise DataError(
                    f"number {j} of the tokens (state, action, reward, return) is known nowhere, "
                    "so that it has no bins. A return is known where all later rewards are: fill "
                    "in those that are absent (0 where nothing was earned)."
                )
            self.edges[j] = torch.from_numpy(np.quantile(column, shares))

    def tokens(self, values: NDArray[Any], first: int = 0) -> NDArray[np.int16]:
        """The bins of some numbers of steps, (n, j), from the `first` on."""
        edges = self.edges[first : first + values.shape[1]].cpu().numpy()
        found = np.empty(values.shape, np.int16)
        for j, column in enumerate(edges):
            places = np.searchsorted(column, np.nan_to_num(values[:, j]), side="right") - 1
            found[:, j] = places.clip(0, self.count - 1)
        return found

    def centres(self) -> Tensor:
        """What each bin stands for, (J, bins)."""
        return ((self.edges[:, 1:] + self.edges[:, :-1]) / 2).float()


class TokenSegments:
    """Segments of tokens; one may go on beyond the end of its episode.

    Args:
        dataset: With rewards.
        scaling: Which modalities are states and actions.
        config: Settings.
        bins: Measured here.
    """

    def __init__(
        self, dataset: TrajectoryDataset, scaling: Scaling, config: TTConfig, bins: Bins
    ) -> None:
        values, known = step_numbers(dataset, scaling, config)
        lengths = dataset.lengths
        listed = np.concatenate(
            [np.arange(a, b) for a, b in zip(dataset.starts, dataset.ends, strict=True)]
        )
        bins.measure(values[listed], known[listed])
        self._tokens = np.where(known, bins.tokens(values), np.int16(bins.unknown))
        self._bins, self._length = bins, config.context
        self._starts: IntArray = listed
        self._ends = np.repeat(dataset.ends, lengths)
        self._terminal = np.repeat(terminal_endings(dataset), lengths)

    def draw(self, batch_size: int, rng: np.random.Generator) -> Tensor:
        """Segments that begin at any step, all equally likely, (B, T * J)."""
        chosen = rng.integers(len(self._starts), size=batch_size)
        steps = self._starts[chosen, None] + np.arange(self._length)  # (B, T)
        beyond = steps >= self._ends[chosen, None]
        tokens = self._tokens[np.where(beyond, 0, steps)]  # (B, T, J)
        after = np.where(self._terminal[chosen], self._bins.over, self._bins.unknown)
        tokens = np.where(beyond[:, :, None], after[:, None, None], tokens)
        return torch.from_numpy(tokens.reshape(batch_size, -1).astype(np.int64))


def step_numbers(
    data: TrajectoryDataset, scaling: Scaling, config: TTConfig
) -> tuple[NDArray[np.float64], BoolArray]:
    """State, action, reward and return of every step, and which are known, (N, J) both."""
    data.check_stored()
    name = reward_of(data).name
    rewards = np.array(data.arrays[name], np.float64).reshape(-1)
    rewarded = data.known(name).copy()
    ends = data.ends[terminal_endings(data)] - 1
    rewards[ends], rewarded[ends] = config.terminal_reward, True
    rewards[~rewarded] = 0.0
    to_go = return_to_go(
        rewards.astype(np.float32), data.starts, data.ends, discount=config.discount
    )
    lacking = return_to_go((~rewarded).astype(np.float32), data.starts, data.ends)
    lasts = np.zeros(len(rewards), bool)
    lasts[data.ends - 1] = True
    returns = np.where(lasts, 0.0, np.append(to_go[1:], 0.0))  # of the next step on
    complete = lasts | (np.append(lacking[1:], 0.0) == 0)
    parts, known = [], []
    for m in (scaling.states, scaling.actions):
        flat = data.arrays[m.name].reshape(len(rewards), -1)
        parts.append(flat)
        known.append(np.broadcast_to(data.known(m.name)[:, None], flat.shape))
    parts += [rewards[:, None], returns[:, None]]
    known += [rewarded[:, None], complete[:, None]]
    return np.concatenate(parts, axis=1, dtype=np.float64), np.concatenate(known, axis=1)
