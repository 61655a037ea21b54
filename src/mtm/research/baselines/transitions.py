"""Which steps of logged data agents can learn from."""

from __future__ import annotations

import warnings

import numpy as np

from mtm.core.errors import DataError
from mtm.data.modalities import BoolArray, IntArray, Modalities, Modality, Role
from mtm.data.returns import reward_of
from mtm.data.terminations import terminal_endings
from mtm.data.trajectories import TrajectoryDataset


class TransitionIndex:
    """The steps that are complete transitions, each equally likely.

    The last step of an episode has no next state. It is used if the episode terminated there, for
    then nothing follows; if the time was up, what would have followed is not known, and it is not.

    Args:
        dataset: With one modality of rewards.
        states: Its states.
        actions: Its actions.

    Raises:
        DataError: There is no complete transition.
    """

    def __init__(self, dataset: TrajectoryDataset, states: Modality, actions: Modality) -> None:
        _warn_of_unknown_endings(dataset)
        lengths = dataset.lengths
        steps = np.repeat(dataset.starts - np.cumsum(lengths) + lengths, lengths)
        steps = steps + np.arange(len(steps))
        rewarded = dataset.known(reward_of(dataset).name)
        lasts = np.zeros(len(rewarded), bool)
        lasts[dataset.ends - 1] = True
        terminal = np.zeros_like(lasts)
        terminal[dataset.ends[terminal_endings(dataset)] - 1] = True
        known = dataset.known(states.name)
        followed = ~lasts & np.append(known[1:], False)
        complete = known & dataset.known(actions.name) & rewarded
        complete &= followed | terminal
        self._steps: IntArray = steps[complete[steps]]
        self._terminal: BoolArray = terminal
        if not len(self._steps):
            raise DataError(
                "no step has a state, an action, a reward and a next state; there is nothing that "
                "an agent could learn from."
            )

    def __len__(self) -> int:
        return len(self._steps)

    def draw(self, size: int, rng: np.random.Generator) -> tuple[IntArray, IntArray, BoolArray]:
        """Some transitions, as `at` gives them."""
        return self.at(rng.integers(len(self), size=size))

    def at(self, numbers: IntArray) -> tuple[IntArray, IntArray, BoolArray]:
        """The transitions of these numbers, from 0 to `len`.

        Returns:
            Their steps, the steps that follow, and whether the episode ended in a terminal state,
            (n,) each. Nothing follows such a step: it is given as its own successor.
        """
        steps = self._steps[numbers]
        ended = self._terminal[steps]
        return steps, np.where(ended, steps, steps + 1), ended


def check_modalities(dataset: TrajectoryDataset) -> tuple[Modality, Modality]:
    """The states and actions of data that an agent can learn from.

    Raises:
        DataError: There is not one modality of rewards with one number per step, or not one
            continuous modality each of states and actions.
    """
    try:
        reward_of(dataset)
    except DataError as error:
        raise DataError(f"an agent learns from rewards: {error}") from error
    known = dataset.modalities
    return only_continuous(known, "state"), only_continuous(known, "action")


def only_continuous(modalities: Modalities, role: Role) -> Modality:
    """The one modality of a role, of numbers.

    Raises:
        DataError: There is none, there are several, or it is not continuous.
    """
    found = modalities.of_role(role)
    if len(found) != 1 or found[0].kind != "continuous":
        listed = ", ".join(f"{m.name} ({m.kind})" for m in found) or "none"
        raise DataError(
            f"an agent needs exactly one continuous modality of role {role!r}, the data have "
            f"{listed}. Join or choose columns with reading.columns."
        )
    return found[0]


def _warn_of_unknown_endings(dataset: TrajectoryDataset) -> None:
    known = dataset.terminated is not None or dataset.metadata.horizon is not None
    if not known and len(np.unique(dataset.lengths)) > 1:
        warnings.warn(
            f"{dataset.metadata.source} says neither which episodes ended in a terminal state nor "
            "how long they can get; all are taken as ended by time. Add flags named terminals.",
            stacklevel=2,
        )
