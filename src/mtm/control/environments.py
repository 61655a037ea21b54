"""Environments by id: gymnasium's MuJoCo and any other it knows, Adroit, dm_control's walker.

The simulators come with the extra `sim` and are imported when an environment is made. Classes that
build on gymnasium are therefore made inside functions.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import io
import logging
import sys
import warnings
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mtm.core.errors import ConfigError, require, unknown
from mtm.data.environment_ids import (
    ADROIT,
    ADROIT_STEPS,
    MUJOCO_NAMES,
    NAMES,
    SUITE_PREFIX,
    SUITE_STEPS,
    family,
    is_adroit,
    replacement,
)
from mtm.data.modalities import Modality

if TYPE_CHECKING:
    import gymnasium

    Environment: TypeAlias = gymnasium.Env[Any, Any]

EXTRA = "sim"
"""The extra of the package that brings the simulators."""

SUITE_TASKS = {
    "dmc:walker-stand": ("walker", "stand"),
    "dmc:walker-walk": ("walker", "walk"),
    "dmc:walker-run": ("walker", "run"),
}
"""Domain and task of each id."""

SUITE_FPS = 40
"""Steps in a second."""

FRAME_SIZE = (480, 480)
"""Height and width of a rendered frame, as gymnasium's MuJoCo environments have it."""

KNOWN_IDS = (
    *(f"{NAMES[key]}-v{v}" for key in NAMES if key not in ADROIT for v in (4, 5)),
    *(f"{NAMES[key]}-v1" for key in ADROIT),
    *SUITE_TASKS,
)
"""The ids that have been tried; any other that is registered with gymnasium works as well."""


def make(env_id: str, *, render: bool = False) -> Environment:
    """Make an environment.

    - `Hopper-v5` and any other id that gymnasium knows, or `MODULE:ID` for one that importing
      MODULE registers: as it is. MODULE is imported, so let a user name such an id, not a data
      file (see `mtm.data.environment_ids.environment_to_act_in`).
    - `AdroitHandDoor-v1` and the like: the reward is 1.0 in a step with the goal achieved, else
      0.0. `info["success"]` says the same, `info["dense_reward"]` has the environment's own
      reward. Success does not end the episode.
    - `dmc:walker-walk`, `dmc:walker-run`, `dmc:walker-stand`: observations are float32, (24,):
      orientations (14), height (1), velocity (9), the task's own order. Episodes of 1000 steps are
      truncated, never terminated. `info["physics"]` has the state of the physics, (18,), from
      which the reward of another task can be computed.

    Args:
        env_id: As above.
        render: Let `render()` return frames, (height, width, 3). This needs an OpenGL back end;
            on a machine without a display choose one with `MUJOCO_GL=egl` or `osmesa`.

    Raises:
        ConfigError: There is no such environment; the message lists near ones.
        MissingExtraError: The simulator is not installed.
    """
    gymnasium = require("gymnasium", extra=EXTRA)
    mode = "rgb_array" if render else None
    if env_id.startswith(SUITE_PREFIX):
        return _make_suite(env_id, mode)
    if is_adroit(env_id):
        _register_adroit()
    _check_registered(env_id)
    name = env_id.rpartition(":")[2].partition("-")[0]
    if name in MUJOCO_NAMES:
        require("mujoco", extra=EXTRA)
    steps = ADROIT_STEPS.get(family(env_id) or "")
    with _without_known_warnings():
        env: Environment = gymnasium.make(env_id, render_mode=mode, max_episode_steps=steps)
    if render:
        _follow(env)
    return _success_reward()(env) if is_adroit(env_id) else env


def action_bounds(env_id: str) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """Least and greatest action of an environment; None if its actions are not numbers.

    Raises:
        ConfigError: There is no such environment.
        MissingExtraError: The simulator is not installed.
    """
    env = make(env_id)
    low, high = (getattr(env.action_space, name, None) for name in ("low", "high"))
    env.close()
    return None if low is None or high is None else (low, high)


def check_spaces(env: Environment, states: Modality, actions: Modality) -> None:
    """Check that a model of these modalities can act in the environment.

    Raises:
        ConfigError: The observation or the action space does not fit; the message says both shapes.
    """
    faults = [
        fault
        for name, space, modality in (
            ("observation", env.observation_space, states),
            ("action", env.action_space, actions),
        )
        if (fault := _misfit(name, space, modality)) is not None
    ]
    if faults:
        title = env.spec.id if env.spec is not None else type(env.unwrapped).__name__
        raise ConfigError(
            f"the environment {title} does not fit the model: {'; '.join(faults)}. Use the "
            "environment that the model's data come from."
        )


def _misfit(name: str, space: gymnasium.Space[Any], modality: Modality) -> str | None:
    """Why values of the space are not values of the modality, or None if they are."""
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        offered = f"1 of {space.n} classes" + (f" from {space.start} on" if space.start else "")
        fits = modality.kind == "discrete" and modality.classes == space.n and space.start == 0
    elif isinstance(space, spaces.Box):
        offered = f"numbers of shape {space.shape}"
        fits = modality.kind == "continuous" and modality.shape == space.shape
    else:
        offered, fits = f"{space}, neither Box nor Discrete", False
    wanted = f"numbers of shape {modality.shape}"
    if modality.kind == "discrete":
        wanted = f"1 of {modality.classes} classes from 0 on"
    return None if fits else f"its {name} is {offered}, modality {modality.name!r} is {wanted}"


def _check_registered(env_id: str) -> None:
    """Raise `ConfigError` unless gymnasium can make the id."""
    import gymnasium

    if (use := replacement(env_id)) is not None:
        raise ConfigError(
            f"{env_id} does not run with gymnasium >= 1.0, which has no mujoco-py. Use {use}."
        )
    module, _, name = env_id.rpartition(":")
    if module:
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise ConfigError(
                f"environment {env_id!r}: the module {module!r} cannot be imported ({error}). "
                "Install it, or name its folder in PYTHONPATH."
            ) from error
    if name not in gymnasium.registry:
        runs = [known for known in gymnasium.registry if replacement(known) is None]
        near = difflib.get_close_matches(name, runs)
        raise ConfigError(
            f"{unknown('environment', env_id, {*KNOWN_IDS, *near})} Any other id that gymnasium "
            "knows works as well; write MODULE:ID for one that importing MODULE registers."
        )


@contextlib.contextmanager
def _without_known_warnings() -> Iterator[None]:
    """Hold back what is said of environments that are chosen on purpose, and nothing else.

    gymnasium says that v4 is out of date, but D4RL's data belong on it. MuJoCo says that an
    attribute in gymnasium's half-cheetah is deprecated, to the terminal and to a log file.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.filterwarnings(
            "ignore", r".*The environment \S+-v4 is out of date", DeprecationWarning
        )
        mujoco = sys.modules.get("mujoco")
        if mujoco is not None:
            stack.callback(mujoco.set_mju_user_warning, mujoco.get_mju_user_warning())
            mujoco.set_mju_user_warning(_pass_on_mujoco_warning)
        yield


def _pass_on_mujoco_warning(message: str) -> None:
    if "settotalmass" not in message:
        logging.getLogger(__name__).warning("MuJoCo: %s", message)


def _register_adroit() -> None:
    """Make Adroit's ids known to gymnasium.

    Importing gymnasium-robotics prints that Adroit's dense reward is another one since 1.2.1. It is
    held back, because here the reward is the success; anything else that is printed passes.
    """
    printed = io.StringIO()
    with contextlib.redirect_stderr(printed):
        require("gymnasium_robotics", extra=EXTRA)
    for line in printed.getvalue().splitlines(keepends=True):
        if not line.startswith("AdroitHand"):
            sys.stderr.write(line)


@cache
def _success_reward() -> type[gymnasium.Wrapper[Any, Any, Any, Any]]:
    """The wrapper that makes success the reward."""
    import gymnasium

    class SuccessReward(gymnasium.Wrapper[Any, Any, Any, Any]):
        """Reward 1.0 for a step with the goal achieved, else 0.0; keeps the dense one in `info`."""

        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            observation, dense, terminated, truncated, info = self.env.step(action)
            success = bool(info["success"])
            info = {**info, "success": success, "dense_reward": float(dense)}
            return observation, float(success), terminated, truncated, info

    return SuccessReward


def _follow(env: Environment) -> None:
    """Draw with the camera that goes along, where the simulation has one; gymnasium's stays."""
    renderer: Any = getattr(env.unwrapped, "mujoco_renderer", None)
    if renderer is not None:
        mujoco = require("mujoco", extra=EXTRA)
        kind = mujoco.mjtObj.mjOBJ_CAMERA
        renderer.camera_id = mujoco.mj_name2id(renderer.model, kind, "track")  # -1: its own


def _make_suite(env_id: str, render_mode: str | None) -> Environment:
    if env_id not in SUITE_TASKS:
        raise ConfigError(unknown("environment", env_id, SUITE_TASKS))
    with warnings.catch_warnings():
        # Frames are another matter: GLFW's code for "no display", at the first import.
        warnings.filterwarnings("ignore", r"\(65550\)")
        suite = require("dm_control.suite", extra=EXTRA)
    env: Environment = _suite_env()(env_id, suite.load(*SUITE_TASKS[env_id]), render_mode)
    return env


@cache
def _suite_env() -> Any:
    """The environment around a task of dm_control's suite."""
    import gymnasium
    from gymnasium.envs.registration import EnvSpec

    class SuiteEnv(gymnasium.Env[NDArray[np.float32], NDArray[np.float32]]):
        """A task of dm_control's suite, as `make` describes it."""

        def __init__(self, env_id: str, task: Any, render_mode: str | None) -> None:
            self.spec = EnvSpec(env_id, max_episode_steps=SUITE_STEPS)
            self.metadata = {"render_modes": ["rgb_array"], "render_fps": SUITE_FPS}
            self.render_mode = render_mode
            self._task = task
            self._needs_reset = True
            width = sum(int(np.prod(s.shape)) for s in task.observation_spec().values())
            limits = task.action_spec()
            self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (width,), np.float32)
            self.action_space = gymnasium.spaces.Box(-1.0, 1.0, limits.shape, np.float32)

        def reset(
            self, *, seed: int | None = None, options: dict[str, Any] | None = None
        ) -> tuple[NDArray[np.float32], dict[str, Any]]:
            super().reset(seed=seed, options=options)
            if seed is not None:
                self._task.task.random.seed(int(self.np_random.integers(1 << 32)))
            self._needs_reset = False
            return _flat(self._task.reset().observation), self._info()

        def step(
            self, action: NDArray[np.float32]
        ) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
            if self._needs_reset:
                raise gymnasium.error.ResetNeeded("no episode is under way: call reset() first.")
            now = self._task.step(action)
            self._needs_reset = bool(now.last())
            return _flat(now.observation), float(now.reward), False, now.last(), self._info()

        def render(self) -> Any:
            if self.render_mode is None:
                return None
            return self._task.physics.render(*FRAME_SIZE, camera_id=0)

        def close(self) -> None:
            self._task.close()

        def _info(self) -> dict[str, Any]:
            return {"physics": self._task.physics.get_state()}

    return SuiteEnv


def _flat(observation: Mapping[str, Any]) -> NDArray[np.float32]:
    """The parts of an observation one after the other, in their own order."""
    return np.concatenate([np.ravel(part) for part in observation.values()]).astype(np.float32)
