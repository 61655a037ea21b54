"""The point mass as a gymnasium environment, registered when this is imported.

`PointMass-v0` is the real thing. In `Fragile-v0` the episode of an even seed raises at step 3.
`Fused-v0` can be interrupted; `Endless-v0` is that without a time limit. Frames have the colour of
the steps so far; `Dark-v0` has none, `Blind-v0` raises when it draws.
"""

from __future__ import annotations

import gymnasium
import numpy as np

from mtm.data.formats import builtin


class PointMass(gymnasium.Env):
    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (4,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self, render_mode=None, fragile=False) -> None:
        self.fragile, self.render_mode = fragile, render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seed, self.steps = seed, 0
        self.state = np.append(self.np_random.uniform(-1, 1, 2), [0.0, 0.0])
        return self.state.astype(np.float32), {}

    def step(self, action):
        self.steps += 1
        if self.fragile and self.seed % 2 == 0 and self.steps == 3:
            raise RuntimeError("a joint broke")
        reward = float(np.exp(-(self.state[:2] ** 2).sum()))
        self.state = builtin.step_point_mass(self.state, np.asarray(action, float))
        near = bool(np.abs(self.state[:2]).max() < 0.05)
        info = {"success": near}
        return self.state.astype(np.float32), reward, False, False, info

    def render(self):
        return np.full((480, 640, 3), self.steps, np.uint8)


class FusedPointMass(PointMass):
    """Raises Ctrl-C when its fuse, shared by all, has burnt down."""

    fuse = -1

    def step(self, action):
        FusedPointMass.fuse -= 1
        if FusedPointMass.fuse == 0:
            raise KeyboardInterrupt
        return super().step(action)


class DarkPointMass(PointMass):
    metadata = {"render_modes": ["human"], "render_fps": 10}


class BlindPointMass(PointMass):
    def render(self):
        if self.steps == 4:
            raise RuntimeError("a bug in an environment")
        return super().render()


REGISTERED = {
    "PointMass-v0": (PointMass, 20, {}),
    "Fragile-v0": (PointMass, 20, {"fragile": True}),
    "Fused-v0": (FusedPointMass, 20, {}),
    "Endless-v0": (FusedPointMass, None, {}),
    "Dark-v0": (DarkPointMass, 20, {}),
    "Blind-v0": (BlindPointMass, 20, {}),
}
for name, (made, limit, extra) in REGISTERED.items():
    if name not in gymnasium.registry:
        gymnasium.register(name, made, max_episode_steps=limit, kwargs=extra)
