"""Whether frames of an environment can be drawn here.

MuJoCo draws through OpenGL, and which of its back ends works shows only when one is tried. That is
done in a process of its own: one that fails leaves a state behind in which the next try, even of a
back end that works, ends the process.
"""

from __future__ import annotations

import os
import subprocess
import sys

from mtm.control import environments
from mtm.data.environment_ids import SUITE_PREFIX

VARIABLE = "MUJOCO_GL"
"""Environment variable that names the back end to MuJoCo, gymnasium and dm_control."""

BACK_ENDS = ("glfw", "egl", "osmesa")
"""To try where the user names none: with a display, without one, in software."""

OPEN_BACK_END = """
import importlib, os, sys
import mujoco
context = importlib.import_module(f"mujoco.{sys.argv[1]}").GLContext(16, 16)
context.make_current()
mujoco.MjrContext(mujoco.MjModel.from_xml_string("<mujoco/>"), mujoco.mjtFontScale.mjFONTSCALE_150)
os._exit(0)  # nothing is tidied up, where back ends stumble too
"""


def why_no_frames(env_id: str) -> str | None:
    """Prepare this process for drawing an environment; returns what is missing, None if nothing is.

    Where the user names no OpenGL back end, `MUJOCO_GL` is set to the first that works. dm_control
    looks at it once, when it is imported, so ask before an environment of its suite is made.

    Args:
        env_id: As for `mtm.control.environments.make`.

    Raises:
        ConfigError: There is no such environment.
        MissingExtraError: The simulator is not installed.
    """
    if env_id.startswith(SUITE_PREFIX):
        return _open_back_end() or _fault_of_suite()
    env = environments.make(env_id)
    modes = env.metadata.get("render_modes") or []
    draws_with_mujoco = hasattr(env.unwrapped, "mujoco_renderer")
    env.close()
    if "rgb_array" not in modes:
        listed = ", ".join(modes) or "none"
        return f"{env_id} gives no frames: its render modes are {listed}, and rgb_array is needed."
    return _open_back_end() if draws_with_mujoco else _missing_library(env_id)


def _missing_library(env_id: str) -> str | None:
    """What an environment that draws in a way of its own says that it lacks."""
    from gymnasium.error import DependencyNotInstalled

    env = environments.make(env_id, render=True)
    try:
        env.reset(seed=0)
        env.render()
    except DependencyNotInstalled as error:
        return str(error)
    finally:
        env.close()
    return None


def _open_back_end() -> str | None:
    """Choose an OpenGL back end that works; returns why there is none."""
    named = os.environ.get(VARIABLE)
    faults = []
    for name in [named] if named else BACK_ENDS:
        opened = subprocess.run(
            [sys.executable, "-c", OPEN_BACK_END, name],
            env=os.environ | {VARIABLE: name},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        if opened.returncode == 0:
            os.environ[VARIABLE] = name
            return None
        last = (opened.stderr.strip().splitlines() or [f"exit code {opened.returncode}"])[-1]
        faults.append(f"{name}: {last}")
    return (
        f"no OpenGL back end works here ({'; '.join(faults)}). On Debian, `apt-get install libegl1 "
        f"libegl-mesa0` gives one that needs no display; {VARIABLE} names another."
    )


def _fault_of_suite() -> str | None:
    """Why dm_control, if it has been imported, does not draw with the back end that works."""
    module = sys.modules.get("dm_control._render")
    chosen, name = getattr(module, "BACKEND", None), os.environ[VARIABLE]
    if module is None or chosen == name:
        return None
    return (
        f"dm_control was imported before and chose the OpenGL back end {chosen}, which is not the "
        f"one that works. Set {VARIABLE}={name} before the program starts."
    )
