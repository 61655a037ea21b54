"""Seven uses of one model, each beside what one would do without it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from mtm.control.return_targets import episode_return, first_returns
from mtm.data.segments import Segments
from mtm.data.trajectories import TrajectoryDataset
from mtm.evaluation.evaluate import SEGMENTS
from mtm.inference.engine import ask
from mtm.inference.queries import predict, represent
from mtm.inference.ridge_regression import RidgeRegression
from mtm.masks.capabilities import NAMED_MASKS
from mtm.models.lines import between_visible
from mtm.runs.run import Run

GAPS = 0.5
"""Share of the states that imputation has to fill in."""

RIDGE = 1e-3
"""Regularisation of the linear probe."""


@dataclass(frozen=True)
class Use:
    """One use of the model, as a row of a table."""

    name: str
    measure: str
    model: float
    baseline: str
    without: float
    higher_is_better: bool


def seven_uses(run: Run, held_out: TrajectoryDataset, tasks: Mapping[str, Any]) -> list[Use]:
    """What the model does, by mask alone, beside a baseline for each.

    Args:
        run: A trained run with states, returns and actions.
        held_out: Episodes that it did not see.
        tasks: Of `evaluate`; the uses that act are left out where it has no returns.
    """
    state = run.modalities.only("state").name
    uses = [
        Use("forward dynamics", "error, next state", tasks["fd"]["normalized"],
            "copying the last", tasks["fd"]["copy_last"], False),
        Use("inverse dynamics", "error, action", tasks["id"]["normalized"],
            "the mean action", 1.0, False),
    ]  # fmt: skip
    if tasks.get("bc") and tasks.get("rcbc"):
        mean_return = episode_return(run, mean_of_quantiles(first_returns(run)))
        cloned = tasks["bc"]["return"]["mean"]
        asked = tasks["rcbc"]["auto"]["return"]["mean"]
        uses += [
            Use("behaviour cloning", "return", cloned, "mean of the data", mean_return, True),
            Use("return-conditioned", "return", asked, "cloning", cloned, True),
        ]
    goal = infilling_error(run, held_out, "goal", state)
    uses.append(
        Use("reaching a goal", "error, the way", goal[0], "a straight line", goal[1], False)
    )
    gaps = imputation_error(run, held_out, state)
    uses.append(Use("filling gaps", "error, gaps", gaps[0], "interpolation", gaps[1], False))
    probe = probe_error(run, held_out, state)
    uses.append(Use("representation", "error, probe", probe[0], "from raw states", probe[1], False))
    return uses


def mean_of_quantiles(quantiles: NDArray[np.float64]) -> float:
    """The mean of values whose quantiles 0, 1, ... 100 % are given: the area under them."""
    return float(((quantiles[:-1] + quantiles[1:]) / 2).mean())


def infilling_error(
    run: Run, held_out: TrajectoryDataset, name: str, state: str
) -> tuple[float, float]:
    """Normalised error of the wanted states of a mask: the model's, and a straight line's."""
    T = run.model.config.segment_length
    question = NAMED_MASKS[name].question(run.modalities, T)
    index = run.modalities.place(state)
    values = _whole_segments(run, held_out, T)
    visible = np.broadcast_to(question.visible, (len(values[state]), *question.visible.shape))
    answer = ask(run, values, np.ascontiguousarray(visible), [state])[state]
    line = _line(values[state], visible[:, :, index])
    wanted = question.wanted[:, index]
    truth = values[state][:, wanted]
    return _error(run, state, answer[:, wanted], truth), _error(run, state, line[:, wanted], truth)


def imputation_error(run: Run, held_out: TrajectoryDataset, state: str) -> tuple[float, float]:
    """Normalised error of lost states in whole episodes: the model's, and interpolation's.

    Both are given the states that are left, and nothing else.
    """
    rng = np.random.default_rng(0)
    model, line, count = 0.0, 0.0, 0
    for index in np.argsort(-held_out.lengths)[:10]:
        episode = held_out.episode(int(index))
        known = ~np.isnan(episode[state]).reshape(len(episode[state]), -1).any(axis=1)
        lost = known & (rng.random(len(known)) < GAPS)
        lost[[0, -1]] = False
        if not lost.any():
            continue
        gaps = np.where(lost.reshape(-1, *[1] * (episode[state].ndim - 1)), np.nan, episode[state])
        filled = predict(run, {state: gaps}, state)[state]
        straight = _line(episode[state][None], (known & ~lost)[None])[0]
        model += _error(run, state, filled[lost], episode[state][lost]) * lost.sum()
        line += _error(run, state, straight[lost], episode[state][lost]) * lost.sum()
        count += int(lost.sum())
    return model / max(count, 1), line / max(count, 1)


def probe_error(run: Run, held_out: TrajectoryDataset, state: str) -> tuple[float, float]:
    """Error of the return-to-go by ridge regression: from representations, and from raw states.

    Fitted on one half of the held-out steps, measured on the other; 1 is as good as the mean.
    """
    name = run.modalities.only("return").name
    spans = zip(held_out.starts, held_out.ends, strict=True)
    steps = np.random.default_rng(0).permutation(np.concatenate([np.arange(*s) for s in spans]))
    half = len(steps) // 2
    values, truth = held_out.arrays[state][steps], held_out.arrays[name][steps]
    errors = [
        _ridge_error(x[:half], truth[:half], x[half:], truth[half:])
        for x in (represent(run, values), values.reshape(len(steps), -1))
    ]
    return errors[0], errors[1]


def _whole_segments(run: Run, held_out: TrajectoryDataset, T: int) -> dict[str, NDArray[Any]]:
    segments = Segments(held_out, T)
    batch = segments.gather(segments.sample(SEGMENTS, seed=0))
    whole = batch.present.all(axis=(1, 2))
    return {name: values[whole] for name, values in batch.values.items()}


def _error(run: Run, name: str, guess: NDArray[Any], truth: NDArray[Any]) -> float:
    std = run.normalizer.statistics[name].std
    return float((((guess - truth) / std).astype(np.float64) ** 2).mean())


def _line(values: NDArray[Any], known: NDArray[np.bool_]) -> NDArray[Any]:
    """Straight lines between known steps, (B, S, *shape); the ends hold the nearest value."""
    line: NDArray[Any] = between_visible(torch.tensor(values), torch.tensor(known)).numpy()
    return line


def _ridge_error(
    x: NDArray[Any], y: NDArray[Any], x_test: NDArray[Any], y_test: NDArray[Any]
) -> float:
    guess = RidgeRegression.fit(x, y, RIDGE)(x_test)
    return float(((guess - y_test) ** 2).mean() / y_test.var())
