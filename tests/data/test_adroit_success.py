"""Success told from observations is what the environment reports."""

from __future__ import annotations

from pathlib import Path

import h5py
import mujoco
import numpy as np
import pytest

from mtm.control import environments
from mtm.data import loading
from mtm.data.formats.adroit_success import achieved

IDS = {
    "door": "AdroitHandDoor-v1",
    "hammer": "AdroitHandHammer-v1",
    "pen": "AdroitHandPen-v1",
    "relocate": "AdroitHandRelocate-v1",
}


def place_near_success(task: str, env, rng: np.random.Generator) -> None:
    """Put the object where the next step may or may not succeed."""
    if task == "door":
        env.data.qpos[28] = rng.uniform(1.25, 1.45)
    elif task == "hammer":
        env.data.qpos[26] = rng.uniform(0.07, 0.09)
    elif task == "pen":
        turned = env.data.xquat[env.obj_body_id] + rng.normal(scale=0.3, size=4)
        env.model.body_quat[env.target_obj_body_id] = turned / np.linalg.norm(turned)
    else:
        target = env.data.site_xpos[env.target_obj_site_id]
        env.model.body_pos[env.obj_body_id] = target - env.data.qpos[30:33]
        env.model.body_pos[env.obj_body_id, 2] += rng.uniform(0, 0.2)
    mujoco.mj_forward(env.model, env.data)


@pytest.mark.parametrize("task", IDS)
def test_success_is_what_the_environment_reports(task: str) -> None:
    rng = np.random.default_rng(0)
    env = environments.make(IDS[task])
    before, reported = [], []
    state, _ = env.reset(seed=0)
    for trial in range(60):
        if trial % 6 == 0:
            state, _ = env.reset(seed=trial)
            place_near_success(task, env.unwrapped, rng)
        before.append(state)
        state, reward, *_ = env.step(np.zeros(env.action_space.shape, np.float32))
        reported.append(reward)
    ends = np.arange(60) % 6 == 5
    told = achieved(task, np.array(before, np.float32), ends)
    # The first state of a trial was moved after it was noted; what the last led to is not seen.
    inner = ~ends & (np.arange(60) % 6 > 0)
    assert told is not None
    assert told[inner].tolist() == np.array(reported)[inner].tolist()
    assert 0 < np.mean(reported) < 1  # both happen, or the test would say nothing


def test_other_widths_are_left_alone() -> None:
    assert achieved("door", np.zeros((3, 7)), np.zeros(3, bool)) is None
    assert achieved("ant", np.zeros((3, 39)), np.zeros(3, bool)) is None


def test_a_d4rl_file_without_the_signal_gets_it(tmp_path: Path) -> None:
    observations = np.zeros((4, 39))
    observations[2:, 28] = 1.4
    with h5py.File(tmp_path / "door-human-v1.hdf5", "w") as file:
        file["observations"], file["actions"] = observations, np.zeros((4, 28))
        file["rewards"], file["terminals"] = np.full(4, 7.0), np.zeros(4)
        file["timeouts"] = np.array([0, 0, 0, 1])
    data = loading.load(str(tmp_path / "door-human-v1.hdf5"))
    assert data.arrays["rewards"].tolist() == [0, 1, 1, 1]
    assert data.metadata.env_id == "AdroitHandDoor-v1"
