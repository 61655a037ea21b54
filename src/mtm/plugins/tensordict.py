"""A run's encoder as a module of TorchRL: reads entries of a TensorDict, writes the encoding.

The weights of a frozen encoder are buffers, which TorchRL's losses copy. Those of a trainable one
are parameters, which a loss that makes several critics of one module draws anew: give it a list of
critics instead, each with a head of its own: `TD3Loss(actor, [make_critic(), make_critic()])`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mtm.encoders import StateActionEncoder, StateEncoder
from mtm.errors import require
from mtm.run import Run

if TYPE_CHECKING:
    from tensordict.nn import TensorDictModule

EXTRA = "baselines"


def state_encoder(
    run: Run | str | Path,
    *,
    observation: str = "observation",
    out: str = "latent",
    trainable: bool = False,
    with_state: bool = False,
    projection: int | None = None,
) -> TensorDictModule:
    """A module that writes the encoding of states.

    Args:
        run: A trained run, or its directory.
        observation: Entry to read.
        out: Entry to write.
        trainable: See `mtm.encoders.StepEncoder`, as the others.
        with_state: Whether the normalised state is put after the encoding.
        projection: Map the encoding linearly to so many features, if given.
    """
    encoder = StateEncoder(run, trainable=trainable, with_state=with_state, projection=projection)
    return _module()(encoder, [observation], [out])


def state_action_encoder(
    run: Run | str | Path,
    *,
    observation: str = "observation",
    action: str = "action",
    out: str = "latent",
    trainable: bool = False,
    with_state: bool = False,
    projection: int | None = None,
) -> TensorDictModule:
    """A module that writes the joint encoding of states and actions.

    Args:
        run: A trained run, or its directory.
        observation: Entry to read.
        action: Entry to read.
        out: Entry to write.
        trainable: See `mtm.encoders.StepEncoder`, as the others.
        with_state: Whether the normalised state is put after the encoding.
        projection: Map the encoding linearly to so many features, if given.
    """
    encoder = StateActionEncoder(
        run, trainable=trainable, with_state=with_state, projection=projection
    )
    return _module()(encoder, [observation, action], [out])


def _module() -> type[TensorDictModule]:
    found: type[TensorDictModule] = require("tensordict.nn", extra=EXTRA).TensorDictModule
    return found
