"""Beam search of the Trajectory Transformer: plans of the highest returns among likely ones.

Letters: n environments, W plans of each that are kept, X actions tried for each plan, J tokens of a
step, S of a state, A of an action.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mtm.research.baselines.imitation_settings import TTConfig
from mtm.research.baselines.tt_network import Memory, TokenTransformer
from mtm.research.baselines.tt_tokens import Bins


class Planner:
    """Searches for plans with a trained network.

    Args:
        network: Trained.
        bins: What its tokens stand for.
        state_size: S.
        config: Settings.
    """

    def __init__(
        self, network: TokenTransformer, bins: Bins, state_size: int, config: TTConfig
    ) -> None:
        self._network, self._bins, self._config = network, bins, config
        self._states, self._actions = state_size, network.numbers - state_size - 2
        worth = torch.zeros(2, bins.count + 1, device=network.positions.device)
        worth[:, :-1] = bins.centres()[-2:]  # when it is over, nothing is earned
        self._worth = worth

    def plan(self, past: Tensor, uniform: Tensor) -> Tensor:
        """The first action of the best plan, in tokens, (n, A).

        Args:
            past: Tokens of past steps and of the state now, (n, steps * J + S).
            uniform: Numbers in [0, 1) that choose the actions, (n, W * X, horizon * A).
        """
        config, n = self._config, len(past)
        W, X = config.beam, config.expand
        memory = Memory.empty(self._network, n)
        logits = self._network.read(past, memory)
        # All plans of an environment are the same until the first action.
        rows = torch.arange(n, device=past.device).repeat_interleave(W)
        tokens, memory, logits = past[rows], memory.select(rows), logits[rows]
        earned = torch.zeros(n * W, device=past.device)
        for step in range(config.horizon):
            rows = torch.arange(n * W, device=past.device).repeat_interleave(X)
            tokens, memory, logits, earned = (
                tokens[rows],
                memory.select(rows),
                logits[rows],
                earned[rows],
            )
            drawn = uniform[:, :, step * self._actions : (step + 1) * self._actions].flatten(0, 1)
            acted, logits = self._act(logits, memory, drawn)
            seen, rewards, returns, logits = self._value(logits, memory)
            earned = earned + config.discount**step * rewards
            total = earned + config.discount ** (step + 1) * returns
            tokens = torch.cat([tokens, acted, seen], dim=1)
            best = total.view(n, W * X).topk(W, dim=1).indices  # (n, W), the best first
            rows = (best + torch.arange(n, device=past.device).unsqueeze(1) * W * X).flatten()
            tokens, earned = tokens[rows], earned[rows]
            if step + 1 < config.horizon:
                memory, logits = self._with_room(tokens, memory, logits, rows)
                states, logits = self._follow(logits, memory)
                tokens = torch.cat([tokens, states], dim=1)
        place = past.shape[1]
        return tokens.view(n, W, -1)[:, 0, place : place + self._actions]

    def _act(self, logits: Tensor, memory: Memory, uniform: Tensor) -> tuple[Tensor, Tensor]:
        """Draw an action, token by token, (rows, A); and the logits of what follows."""
        chosen = []
        for i in range(self._actions):
            probable = likely(logits[:, : self._bins.count], self._config.action_mass)
            token = drawn(probable, uniform[:, i])
            chosen.append(token)
            logits = self._network.read(token.unsqueeze(1), memory)
        return torch.stack(chosen, dim=1), logits

    def _value(self, logits: Tensor, memory: Memory) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The likeliest reward and return in tokens, (rows, 2), and the means of both, (rows,)."""
        tokens, means = [], []
        for i in range(2):
            means.append(logits.softmax(dim=1) @ self._worth[i])
            tokens.append(logits.argmax(dim=1))
            logits = self._network.read(tokens[-1].unsqueeze(1), memory)
        return torch.stack(tokens, dim=1), means[0], means[1], logits

    def _follow(self, logits: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
        """The likeliest next state, token by token, (rows, S)."""
        chosen = []
        for _ in range(self._states):
            chosen.append(logits.argmax(dim=1))
            logits = self._network.read(chosen[-1].unsqueeze(1), memory)
        return torch.stack(chosen, dim=1), logits

    def _with_room(
        self, tokens: Tensor, memory: Memory, logits: Tensor, rows: Tensor
    ) -> tuple[Memory, Tensor]:
        """The memory of the plans that were kept; read anew without the oldest step if it is full.

        Places are counted from the first step that is seen, so that forgetting moves all others.
        """
        J = self._network.numbers
        if memory.filled + J <= self._config.window * J:
            return memory.select(rows), logits[rows]
        recent = tokens[:, -(self._config.window - 1) * J :] if self._config.window > 1 else None
        fresh = Memory.empty(self._network, len(tokens))
        if recent is None:
            return fresh, logits[rows]
        return fresh, self._network.read(recent, fresh)


def likely(logits: Tensor, mass: float) -> Tensor:
    """Probabilities of the most likely tokens that together have `mass`, others 0; (rows, V)."""
    probabilities = logits.softmax(dim=1)
    falling, order = probabilities.sort(dim=1, descending=True, stable=True)
    before = falling.cumsum(dim=1) - falling  # what likelier ones have; 0 for the first
    return torch.zeros_like(falling).scatter(1, order, falling * (before < mass))


def drawn(probabilities: Tensor, uniform: Tensor) -> Tensor:
    """A token of each row, (rows,), by a number in [0, 1); probabilities need not sum to 1."""
    until = probabilities.cumsum(dim=1)
    sought = uniform.unsqueeze(1) * until[:, -1:]
    found = torch.searchsorted(until, sought, right=True).squeeze(1)
    last = probabilities.shape[1] - 1 - (probabilities.flip(1) > 0).int().argmax(dim=1)
    return torch.minimum(found, last)
