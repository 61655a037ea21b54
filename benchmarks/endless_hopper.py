"""Hopper that does not end when it falls, so that every episode has the same number of steps."""

import gymnasium
from gymnasium.envs.mujoco.hopper_v5 import HopperEnv

STEPS = 300
ENV_ID = "benchmarks.endless_hopper:EndlessHopper-v0"

gymnasium.register(
    "EndlessHopper-v0",
    HopperEnv,
    max_episode_steps=STEPS,
    kwargs={"terminate_when_unhealthy": False},
)
