"""Environments are what the data were recorded on, and fit the model or say why not."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mtm.control import environments
from mtm.control.environments import SUITE_TASKS, check_spaces, make
from mtm.core.errors import ConfigError, MissingExtraError
from mtm.data.modalities import Modality

SIZES = {
    "Hopper-v4": (11, 3),
    "Hopper-v5": (11, 3),
    "Walker2d-v4": (17, 6),
    "Walker2d-v5": (17, 6),
    "HalfCheetah-v4": (17, 6),
    "HalfCheetah-v5": (17, 6),
    "Ant-v4": (27, 8),
    "Ant-v5": (105, 8),
}
ADROIT = {  # size of observation and action, steps of an episode
    "AdroitHandPen-v1": (45, 24, 100),
    "AdroitHandDoor-v1": (39, 28, 200),
    "AdroitHandHammer-v1": (46, 26, 200),
    "AdroitHandRelocate-v1": (39, 30, 200),
}


@pytest.fixture
def gymnasium() -> Any:
    return pytest.importorskip("gymnasium", reason="gymnasium is not installed (extra sim)")


@pytest.fixture
def mujoco(gymnasium: Any) -> Any:
    return pytest.importorskip("mujoco", reason="mujoco is not installed (extra sim)")


@pytest.fixture
def adroit(mujoco: Any) -> None:
    pytest.importorskip("gymnasium_robotics", reason="gymnasium-robotics is not installed (sim)")


@pytest.fixture
def suite(mujoco: Any) -> Any:
    return pytest.importorskip("dm_control.suite", reason="dm_control is not installed (sim)")


def play(env: Any, steps: int, seed: int = 3) -> tuple[Any, list[tuple[Any, ...]]]:
    """The first observation and what `steps` random steps return."""
    first, _ = env.reset(seed=seed)
    env.action_space.seed(seed)
    return first, [env.step(env.action_space.sample()) for _ in range(steps)]


@pytest.mark.usefixtures("mujoco")
@pytest.mark.parametrize("env_id", SIZES)
def test_mujoco_runs_without_a_word(
    env_id: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = make(env_id)
        _, steps = play(env, 5)
    observation, action = SIZES[env_id]
    check_spaces(env, Modality("states", (observation,)), Modality("actions", (action,)))
    assert steps[-1][0].shape == (observation,)
    assert env.spec is not None
    assert env.spec.max_episode_steps == 1000
    assert env.render_mode is None
    env.close()
    assert capfd.readouterr() == ("", "")
    assert list(tmp_path.iterdir()) == []  # MuJoCo writes its warnings to a log file


@pytest.mark.usefixtures("mujoco")
def test_the_feet_of_walker2d_differ_between_versions() -> None:
    """Why data of v2 are refused on v5: v4 has v2's feet, v5 has two equal ones."""
    feet: dict[int, list[float]] = {}
    for version in (4, 5):
        env = make(f"Walker2d-v{version}")
        model: Any = env.unwrapped
        geoms = [model.model.geom(name) for name in ("foot_geom", "foot_left_geom")]
        feet[version] = [float(geom.friction[0]) for geom in geoms]
        env.close()
    assert feet == {4: [0.9, 1.9], 5: [1.9, 1.9]}


def test_a_seed_makes_an_episode_repeatable(mujoco: Any, suite: Any) -> None:
    for env_id in ("Hopper-v5", "dmc:walker-walk"):
        runs = [play(make(env_id), 10) for _ in range(2)]
        again = make(env_id)
        play(again, 4, seed=8)
        runs.append(play(again, 10))
        other, _ = play(again, 1, seed=9)
        for first, steps in runs[1:]:
            np.testing.assert_array_equal(first, runs[0][0])
            np.testing.assert_array_equal(steps[-1][0], runs[0][1][-1][0])
        assert (other != runs[0][0]).any()


@pytest.mark.usefixtures("adroit")
@pytest.mark.parametrize("env_id", ADROIT)
def test_adroit_rewards_success_and_ends_by_time(env_id: str) -> None:
    env = make(env_id)
    observation, action, length = ADROIT[env_id]
    check_spaces(env, Modality("states", (observation,)), Modality("actions", (action,)))
    _, steps = play(env, length)
    assert [truncated for *_, truncated, _ in steps] == [False] * (len(steps) - 1) + [True]
    assert not any(terminated for _, _, terminated, _, _ in steps)
    for _, reward, _, _, info in steps:
        assert type(info["success"]) is bool
        assert type(reward) is float
        assert reward == info["success"]
        assert type(info["dense_reward"]) is float
    assert len({info["dense_reward"] for *_, info in steps}) > 10
    env.close()


@pytest.mark.usefixtures("adroit", "suite")
@pytest.mark.parametrize("env_id", ["AdroitHandPen-v1", "dmc:walker-walk"])
def test_the_first_import_of_a_simulator_says_nothing(env_id: str) -> None:
    """In a process of its own, because what it has to say comes at the first import only."""
    code = f"from mtm.control.environments import make; make({env_id!r})"
    without_display = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "MUJOCO_GL")}
    done = subprocess.run(
        [sys.executable, "-W", "always", "-W", "ignore::DeprecationWarning", "-c", code],
        env=without_display,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.usefixtures("adroit")
def test_adroit_goes_on_after_success() -> None:
    env = make("AdroitHandDoor-v1")
    env.reset(seed=0)
    door: Any = env.unwrapped
    state = door.get_env_state()
    state["qpos"][door.door_hinge_addrs] = 1.5  # the goal is achieved from 1.35 on
    env.reset(options={"initial_state_dict": state})
    steps = [env.step(np.zeros(28, np.float32)) for _ in range(3)]
    assert [reward for _, reward, *_ in steps] == [1.0] * 3
    assert all(info["success"] for *_, info in steps)
    assert not any(terminated or truncated for _, _, terminated, truncated, _ in steps)
    assert all(info["dense_reward"] > 10 for *_, info in steps)
    env.close()


@pytest.mark.parametrize("env_id", SUITE_TASKS)
def test_suite_tasks_are_gymnasium_environments(env_id: str, gymnasium: Any, suite: Any) -> None:
    env = make(env_id)
    check_spaces(env, Modality("states", (24,)), Modality("actions", (6,)))
    first, steps = play(env, 20)
    assert first.dtype == np.float32
    assert all(env.observation_space.contains(observation) for observation, *_ in steps)
    assert all(0 <= reward <= 1 for _, reward, *_ in steps)
    assert env.spec is not None
    assert env.spec.id == env_id
    env.close()


@pytest.mark.usefixtures("suite")
def test_suite_episodes_are_truncated_after_1000_steps(gymnasium: Any) -> None:
    env = make("dmc:walker-walk")
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(np.zeros(6, np.float32))
    _, steps = play(env, 1000)
    assert [truncated for *_, truncated, _ in steps] == [False] * 999 + [True]
    assert not any(terminated for _, _, terminated, _, _ in steps)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(np.zeros(6, np.float32))
    env.reset()
    env.step(np.zeros(6, np.float32))


def test_suite_observations_and_rewards_follow_from_the_physics(suite: Any) -> None:
    _, steps = play(make("dmc:walker-stand"), 5)
    observation, reward, _, _, info = steps[-1]
    assert info["physics"].shape == (18,)
    task = suite.load("walker", "stand")
    with task.physics.reset_context():
        task.physics.set_state(info["physics"])
    parts = task.task.get_observation(task.physics)
    assert list(parts) == ["orientations", "height", "velocity"]
    np.testing.assert_array_equal(observation[:14], parts["orientations"].astype(np.float32))
    assert observation[14] == np.float32(parts["height"])
    np.testing.assert_array_equal(observation[15:], parts["velocity"].astype(np.float32))
    assert reward == task.task.get_reward(task.physics)
    assert (steps[0][4]["physics"] != info["physics"]).any()  # each step has its own


@pytest.mark.usefixtures("gymnasium")
@pytest.mark.parametrize(
    ("env_id", "message"),
    [
        ("Hoper-v5", r"unknown environment 'Hoper-v5'. Did you mean 'Hopper-v5'"),
        ("Hopper", r"Did you mean 'Hopper-v[45]'"),
        ("CartPol-v1", r"Did you mean 'CartPole-v1'"),
        ("Hopper-v3", r"Hopper-v3 does not run .* Use Hopper-v4"),
        ("dmc:walker-jog", r"unknown environment.* 'dmc:walker-(run|walk)'.* Allowed: dmc"),
        ("no_such_module:Thing-v0", r"'no_such_module' cannot be imported"),
        ("", r"unknown environment ''"),
    ],
)
def test_unknown_ids_are_refused_with_near_ones(env_id: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make(env_id)


def test_known_ids_are_known(adroit: None, suite: Any) -> None:
    for env_id in environments.KNOWN_IDS:
        environment = make(env_id)
        assert environment.action_space.shape, env_id
        environment.close()


def test_a_missing_simulator_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(MissingExtraError, match=r"pip install .*\[sim\]"):
        make("Hopper-v5")


@pytest.mark.usefixtures("gymnasium")
@pytest.mark.parametrize(
    ("env_id", "states", "actions", "message"),
    [
        (
            "CartPole-v1",
            Modality("states", (17,)),
            Modality("actions", (), "discrete", 2),
            r"CartPole-v1 .*observation is numbers of shape \(4,\), modality 'states' is numbers "
            r"of shape \(17,\)",
        ),
        (
            "CartPole-v1",
            Modality("states", (4,)),
            Modality("moves", (), "discrete", 3),
            r"action is 1 of 2 classes, modality 'moves' is 1 of 3 classes",
        ),
        (
            "CartPole-v1",
            Modality("states", (4,)),
            Modality("actions", (2,)),
            r"action is 1 of 2 classes, modality 'actions' is numbers of shape \(2,\)",
        ),
        (
            "Pendulum-v1",
            Modality("states", (2,)),
            Modality("actions", (), "discrete", 2),
            r"observation is .*\(3,\).*; its action is numbers of shape \(1,\)",
        ),
        (
            "Blackjack-v1",
            Modality("states", (3,)),
            Modality("actions", (), "discrete", 2),
            r"observation is Tuple.*neither Box nor Discrete",
        ),
    ],
)
def test_spaces_that_do_not_fit(
    env_id: str, states: Modality, actions: Modality, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        check_spaces(make(env_id), states, actions)


@pytest.mark.usefixtures("gymnasium")
def test_discrete_spaces_that_fit() -> None:
    check_spaces(
        make("FrozenLake-v1"),
        Modality("states", (), "discrete", 16),
        Modality("actions", (), "discrete", 4),
    )


RENDER = """
import sys
import mujoco
try:
    mujoco.GLContext(16, 16)
except Exception as error:
    sys.exit(f"no OpenGL: {error!r}")
from mtm.control.environments import make
for env_id in ("Hopper-v5", "dmc:walker-walk"):
    env = make(env_id, render=True)
    env.reset(seed=0)
    frame = env.render()
    print(env_id, frame.shape, frame.dtype, frame.std() > 0)
    env.close()
"""


@pytest.mark.usefixtures("suite")
def test_frames_where_there_is_an_opengl_back_end() -> None:
    """In a process of its own, because the back end is chosen when dm_control is imported."""
    backend = os.environ.get("MUJOCO_GL", "egl")
    done = subprocess.run(
        [sys.executable, "-c", RENDER],
        env=os.environ | {"MUJOCO_GL": backend},
        capture_output=True,
        text=True,
    )
    if "no OpenGL" in done.stderr:
        pytest.skip(f"MUJOCO_GL={backend} does not work here: {done.stderr.strip()[-200:]}")
    assert done.stdout.splitlines() == [
        f"{env_id} (480, 480, 3) uint8 True" for env_id in ("Hopper-v5", "dmc:walker-walk")
    ], done.stderr
