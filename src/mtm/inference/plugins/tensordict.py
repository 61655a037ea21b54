"""A run's encoder as a module of TorchRL: reads entries of a TensorDict, writes the encoding.

The weights of a frozen encoder are buffers, which TorchRL's losses copy. Those of a trainable one
are parameters, which a loss that makes several critics of one module draws anew: give it a list of
critics instead, each with a head of its own: `TD3Loss(actor, [make_critic(), make_critic()])`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtm.core.errors import require
from mtm.inference.encoders import StateActionEncoder, StateEncoder, StepEncoder
from mtm.runs.run import Run

if TYPE_CHECKING:
    from tensordict.nn import TensorDictModule

EXTRA = "baselines"


def state_encoder(
    run: Run | str | Path, *, observation: str = "observation", out: str = "latent", **options: Any
) -> TensorDictModule:
    """A module that writes the encoding of states.

    Args:
        run: A trained run, or its directory.
        observation: Entry to read.
        out: Entry to write.
        **options: `trainable`, `with_state`, `projection`: see `mtm.StateEncoder`.
    """
    return _module(StateEncoder(run, **options), [observation], out)


def state_action_encoder(
    run: Run | str | Path,
    *,
    observation: str = "observation",
    action: str = "action",
    out: str = "latent",
    **options: Any,
) -> TensorDictModule:
    """A module that writes the joint encoding of states and actions.

    Args:
        run: A trained run, or its directory.
        observation: Entry to read.
        action: Entry to read.
        out: Entry to write.
        **options: `trainable`, `with_state`, `projection`: see `mtm.StateEncoder`.
    """
    return _module(StateActionEncoder(run, **options), [observation, action], out)


def _module(encoder: StepEncoder, read: list[str], written: str) -> TensorDictModule:
    module: type[TensorDictModule] = require("tensordict.nn", extra=EXTRA).TensorDictModule
    return module(encoder, read, [written])
