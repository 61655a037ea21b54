"""Ids of environments: which one data belong to, without loading any simulator."""

from __future__ import annotations

import re
import sys
import warnings
from pathlib import PurePath

from mtm.core.errors import ConfigError, MTMError
from mtm.data.trajectories import Metadata

NAMES: dict[str, str] = {
    "hopper": "Hopper",
    "walker2d": "Walker2d",
    "halfcheetah": "HalfCheetah",
    "ant": "Ant",
    "pen": "AdroitHandPen",
    "door": "AdroitHandDoor",
    "hammer": "AdroitHandHammer",
    "relocate": "AdroitHandRelocate",
}
"""What gymnasium calls the environment of each family, without the version."""

ADROIT = ("pen", "door", "hammer", "relocate")
"""Families of the Adroit hand, whose score is the number of steps with the goal achieved."""

MUJOCO_NAMES = (
    "Ant",
    "HalfCheetah",
    "Hopper",
    "Humanoid",
    "HumanoidStandup",
    "InvertedDoublePendulum",
    "InvertedPendulum",
    "Pusher",
    "Reacher",
    "Swimmer",
    "Walker2d",
)
"""Environments whose versions before v4 need mujoco-py, which gymnasium >= 1.0 does not run."""

ADROIT_STEPS = {"pen": 100, "door": 200, "hammer": 200, "relocate": 200}
"""Episode lengths of D4RL's data, which for pen differs from what gymnasium-robotics registers."""

SUITE_STEPS = 1000
"""Of an episode of dm_control's suite: 25 seconds, 0.025 seconds a step."""

SUITE_PREFIX = "dmc:"
"""Marks a task of dm_control's suite: `dmc:DOMAIN-TASK`."""

_QUALITIES = "random|medium|expert|medium[-_]replay|full[-_]replay|medium[-_]expert|human|cloned"
_D4RL_NAME = re.compile(rf"(?P<family>{'|'.join(NAMES)})([-_]({_QUALITIES}))?-v\d+")


class EnvironmentMismatchError(MTMError, ValueError):
    """Data and environment do not belong together, so that a score would mean nothing."""


def family(env_id: str | None) -> str | None:
    """The family of reference returns that an id belongs to, such as `hopper`, if any.

    Args:
        env_id: gymnasium's (`Hopper-v5`, `AdroitHandDoor-v1`) or D4RL's (`door-human-v1`).
    """
    if env_id is None or env_id.startswith(SUITE_PREFIX):
        return None
    if found := _D4RL_NAME.fullmatch(env_id):
        return found["family"]
    name, _ = _split(env_id)
    name = name.removesuffix("Sparse")
    return next((key for key, value in NAMES.items() if name in (key, value)), None)


def is_adroit(env_id: str | None) -> bool:
    """Whether the id is an Adroit hand's, which is scored by steps with the goal achieved."""
    return family(env_id) in ADROIT


def replacement(env_id: str) -> str | None:
    """The id to use in place of one that gymnasium >= 1.0 no longer runs; None if it runs."""
    name, version = _split(env_id)
    retired = name in MUJOCO_NAMES and version is not None and version < 4
    return f"{name}-v4" if retired else None


def matching_environment(metadata: Metadata) -> str | None:
    """The id of the environment to evaluate on, or None if the data name none.

    D4RL's data of Hopper, Walker2d, HalfCheetah and Ant, recorded on `-v2` environments, belong on
    `-v4` ids, which kept the physics. Other data belong on the environment they name.
    """
    recorded = _recorded_on(metadata)
    return None if recorded is None else replacement(recorded) or recorded


def module_of(env_id: str) -> str | None:
    """The module that making an environment `MODULE:ID` imports; None for all others."""
    if env_id.startswith(SUITE_PREFIX):
        return None
    return env_id.rpartition(":")[0] or None


def environment_to_act_in(metadata: Metadata) -> str | None:
    """The environment that the data name, where nobody has named one.

    Making an environment `MODULE:ID` imports MODULE, which a data file must not decide.

    Raises:
        ConfigError: The data name one like that, and the module has not been imported.
    """
    env_id = matching_environment(metadata)
    if env_id is None:
        return None
    module = module_of(env_id)
    if module is not None and module not in sys.modules:
        raise ConfigError(
            f"the data ({metadata.source}) name the environment {env_id}, and no module is "
            "imported on the word of a data file. If you trust it, name the environment yourself: "
            f"--env {env_id} on the command line, env_id=... in Python."
        )
    return env_id


def check_environment(metadata: Metadata, env_id: str) -> None:
    """Refuse an environment that the data do not belong to; warn of one that may differ.

    Data that name no environment pass: there is nothing to compare.

    Raises:
        EnvironmentMismatchError: `env_id` no longer runs, is another environment than the data's,
            or is Walker2d-v5 for data recorded before the friction of its feet changed.
    """
    if (use := replacement(env_id)) is not None:
        raise EnvironmentMismatchError(
            f"{env_id} does not run with gymnasium >= 1.0, which has no mujoco-py. Use {use}."
        )
    recorded, matching = _recorded_on(metadata), matching_environment(metadata)
    if recorded is None or env_id == matching:
        return
    if _kind(recorded) != _kind(env_id):
        raise EnvironmentMismatchError(
            f"the data ({metadata.source}) were recorded on {recorded}, not on {env_id}. "
            f"Use {matching}."
        )
    version = _split(env_id)[1]
    before_v5 = (_split(recorded)[1] or 5) < 5
    if family(recorded) == "walker2d" and before_v5 and version not in (None, 4):
        raise EnvironmentMismatchError(
            f"the data ({metadata.source}) were recorded on {recorded}; {env_id} has another "
            f"friction of the right foot, so returns on it do not compare. Use {matching}."
        )
    if (difference := _difference(recorded, env_id)) is not None:
        warnings.warn(
            f"the data ({metadata.source}) were recorded on {recorded}, the environment is "
            f"{env_id}: {difference}. {matching} would match.",
            stacklevel=2,
        )


def _recorded_on(metadata: Metadata) -> str | None:
    """The data's environment, as gymnasium spells it; D4RL's own files tell by their name only."""
    stated = metadata.env_id
    if stated is None:
        stated = PurePath(metadata.source.rpartition(":")[2]).name
        stated = stated.removesuffix(".hdf5").removesuffix(".h5")
    found = _D4RL_NAME.fullmatch(stated)
    if found is None:
        return metadata.env_id
    key = found["family"]
    return f"{NAMES[key]}-{'v1' if key in ADROIT else 'v2'}"


def _split(env_id: str) -> tuple[str, int | None]:
    """Name and version of an id: `module:Hopper-v5` -> Hopper, 5."""
    name, _, version = env_id.rpartition(":")[2].rpartition("-v")
    if name and version.isdecimal():
        return name, int(version)
    return env_id.rpartition(":")[2], None


def _kind(env_id: str) -> str:
    """What must be the same for data and environment; a suite's tasks share their domain."""
    if env_id.startswith(SUITE_PREFIX):
        return env_id.rpartition("-")[0]
    return family(env_id) or _split(env_id)[0]


def _difference(recorded: str, env_id: str) -> str | None:
    """In what two ids of one kind differ that may matter, or None."""
    if env_id.startswith(SUITE_PREFIX):
        return "the tasks differ, and with them the rewards" if recorded != env_id else None
    if _split(recorded)[1] != _split(env_id)[1]:
        return "the versions differ, and physics, observations or rewards may too"
    return None
