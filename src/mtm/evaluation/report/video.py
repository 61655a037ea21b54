"""An episode as a moving picture."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from mtm.control import environments
from mtm.control.policies import Policy
from mtm.core.errors import require

LONGEST = 400
"""Frames of a video; a GIF of a whole long episode would be too large to look at."""

EVERY = 2
"""Steps between frames."""


def record(policy: Policy, env_id: str, seed: int, path: Path) -> str:
    """Record one episode as a GIF; where nothing can be rendered, say what is missing instead.

    Returns:
        One line for people: where the video is, or why there is none.
    """
    image: Any = require("PIL.Image", extra="report")
    if sys.platform == "linux" and "DISPLAY" not in os.environ:
        os.environ.setdefault("MUJOCO_GL", "egl")  # before the simulator is first imported
    try:
        frames = _frames(policy, env_id, seed)
    except Exception as error:  # each OpenGL back end fails in a way of its own
        return (
            f"no video: nothing can be rendered here ({type(error).__name__}: {error}). On Debian, "
            "`apt-get install libegl1 libegl-mesa0` gives an OpenGL back end; set MUJOCO_GL=egl."
        )
    pictures = [image.fromarray(frame).resize((240, 240)) for frame in frames]
    pictures[0].save(path, save_all=True, append_images=pictures[1:], duration=33, loop=0)
    return f"{path}: {len(pictures)} frames"


def _frames(policy: Policy, env_id: str, seed: int) -> list[Any]:
    env = environments.make(env_id, render=True)
    try:
        state, _ = env.reset(seed=seed)
        policy.reset(1)
        frames, done = [env.render()], False
        for step in range(1, LONGEST * EVERY):
            action = policy.act(np.asarray(state)[None])[0]
            state, reward, terminated, truncated, _ = env.step(action)
            done = bool(terminated or truncated)
            policy.observe(np.array([reward]), np.array([done]))
            if step % EVERY == 0:
                frames.append(env.render())
            if done:
                break
        return frames
    finally:
        env.close()
