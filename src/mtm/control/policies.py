"""Ways to act with a run; they differ by what they show the model, not by code.

    policy = behavior_cloning(run)                      as the data's policies would
    policy = return_conditioned(run, "fraction:0.9")    as goes with a return
    policy = two_stage(run)                             by way of imagined states
    policy = tracking(run, reference)                   along a trajectory of states
    policy = planning(run)                              by trying variations in imagination
    policy = as_published(run, "rcbc", "fraction:0.9")  as the original code acts

`mtm.rollout({"mine": policy}, "Hopper-v5")` lets them act; `mtm.control.policy` says what they do.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from mtm.control.masked_policy import MaskedPolicy, Way, join
from mtm.control.paper_policy import PaperPolicy, paper_target
from mtm.control.planning import PlanningPolicy
from mtm.control.policy import ModelPolicy, Policy
from mtm.control.return_targets import TargetSpec, resolve_target
from mtm.core.config import CUSTOM_MASK
from mtm.core.errors import ConfigError, DataError
from mtm.core.mask_mix import parse_mix
from mtm.core.names import ActingTask
from mtm.core.plan_config import PlanConfig
from mtm.inference.inputs import as_batch
from mtm.runs.run import Run

__all__ = [
    "MaskedPolicy",
    "ModelPolicy",
    "PaperPolicy",
    "PlanConfig",
    "PlanningPolicy",
    "Policy",
    "Way",
    "as_published",
    "behavior_cloning",
    "join",
    "longest_history",
    "planning",
    "return_conditioned",
    "tracking",
    "two_stage",
]

FUTURE = 2
"""States that two-stage acting predicts where the run was not trained with the mask `id`, which
shows all states of a segment; docs/research-log compares one to three."""


def behavior_cloning(run: Run, *, history: int = 0) -> MaskedPolicy:
    """Act as the data's policies would in the same state.

    Args:
        run: A trained run.
        history: Past steps to show, with the actions taken in them; the paper shows none.
    """
    return MaskedPolicy(run, [Way(history=history, own_actions=True)])


def return_conditioned(
    run: Run, target: TargetSpec = "auto", *, history: int = 0, guidance: float = 1.0
) -> MaskedPolicy:
    """Act as goes with a return.

    Args:
        run: A trained run.
        target: `auto`, or see `mtm.control.return_targets.resolve_target`.
        history: Past states to show; docs/research-log compares none to three.
        guidance: How far to go from what the same weights do without the return (0) to what they
            do with it (1), or beyond.
    """
    asked = resolve_target(run, target)
    return MaskedPolicy(run, [Way(target=asked, history=history, guidance=guidance)])


def two_stage(
    run: Run,
    target: TargetSpec = "auto",
    *,
    future: int | None = None,
    history: int = 0,
) -> MaskedPolicy:
    """First predict the states that go with a return, then the action that leads to them.

    The first stage shows the state and the return now, the second states alone. It is steadier if
    the run was trained with more of the mask of inverse dynamics: `balanced+id`.

    Args:
        run: A trained run.
        target: As for `return_conditioned`.
        future: How many states to predict; None: as many as fit if the run was trained with the
            mask `id`, else two at most.
        history: Past states to show; docs/research-log compares none and one.

    Raises:
        ConfigError: No state is to be predicted, or there is no room for one.
    """
    ahead = _usual_future(run, history) if future is None else future
    if ahead < 1:
        raise ConfigError(
            f"two-stage acting predicts at least one state, got {ahead}; the run's segments have "
            f"{run.model.config.segment_length} step(s), of which one is the current one."
        )
    asked = resolve_target(run, target)
    return MaskedPolicy(run, [Way(target=asked, future=ahead, history=history)])


def tracking(
    run: Run, reference: ArrayLike, *, future: int = 1, history: int | None = None
) -> MaskedPolicy:
    """Follow a trajectory of states by inverse dynamics.

    Args:
        run: A trained run.
        reference: The states to follow, (S, *shape), from the first one on; the last is held.
        future: How many states ahead to look.
        history: Past states to show; None: as many as fit.

    Raises:
        DataError: The reference does not fit the model, has no step, or has a gap.
    """
    past = longest_history(run, future) if history is None else history
    states, batched = as_batch(run, run.modalities.only("state").name, reference)
    if batched:
        raise DataError(f"a reference is one trajectory, (S, *shape), got {np.shape(reference)}.")
    return MaskedPolicy(run, [Way(future=future, reference=states[0], history=past)])


def planning(
    run: Run, plain: MaskedPolicy | None = None, plan: PlanConfig | None = None
) -> PlanningPolicy:
    """Vary the actions of a plain policy, imagine what comes of them, and act by the best.

    Args:
        run: A trained run.
        plain: The policy to improve on; None: `return_conditioned(run)`, or `behavior_cloning` of
            the current state for a run without returns.
        plan: How to plan; see `PlanConfig`.

    Raises:
        ConfigError: The policy is of another run, or as `PlanningPolicy`.
    """
    if plain is None:
        asks = bool(run.modalities.of_role("return"))
        plain = return_conditioned(run) if asks else behavior_cloning(run, history=0)
    if plain.run is not run:
        raise ConfigError("the plain policy that planning improves on must be of the same run.")
    return PlanningPolicy(plain, plan or PlanConfig())


def as_published(run: Run, task: ActingTask, target: TargetSpec = "auto") -> PaperPolicy:
    """Act as the original code does, which shows other tokens than the policies above.

    Args:
        run: A trained run.
        task: `bc`, `rcbc` or `two_stage`; `mtm.control.paper_policy` says what each shows.
        target: For the last two; see `mtm.control.paper_policy.paper_target`.

    Raises:
        ConfigError: As `PaperPolicy`, or the target cannot be understood.
    """
    return PaperPolicy(run, task, None if task == "bc" else paper_target(run, target))


def longest_history(run: Run, future: int = 0) -> int:
    """As many past steps as fit into a segment, beside the current and the future ones."""
    return max(run.segment_length - 1 - future, 0)


def _usual_future(run: Run, history: int) -> int:
    """As many states as the second stage is used to see."""
    room = longest_history(run, history)
    return room if "id" in _training_masks(run) else min(FUTURE, room)


def _training_masks(run: Run) -> tuple[str, ...]:
    """The names of the masks that a run was trained with; none of a function of the user's own."""
    mask = run.description.train.mask
    return () if mask == CUSTOM_MASK else tuple(n for n, w in parse_mix(mask).items() if w > 0)
