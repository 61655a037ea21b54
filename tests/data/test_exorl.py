"""ExORL's episodes are paired as they were recorded, and rewards are dm_control's own."""

from __future__ import annotations

import io
import logging
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mtm.control import environments
from mtm.core.errors import DataError
from mtm.data.formats import exorl, walker_rewards
from mtm.data.loading import load
from mtm.data.writing import write

TOLERANCE = 1e-5


def episode(steps: int, seed: int = 0) -> dict[str, np.ndarray]:
    """An episode of ExORL's shapes, whose values tell the row that they come from."""
    rng = np.random.default_rng(seed)
    row = np.arange(steps + 1, dtype=np.float32)[:, None]
    return {
        "observation": np.tile(row + 0.25, (1, 24)),
        "action": np.tile(row / 100, (1, 6)),
        "reward": row,
        "discount": np.ones_like(row),
        "physics": rng.normal(size=(steps + 1, 18)),
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "buffer"
    path.mkdir()
    for i, steps in enumerate((6, 4)):
        np.savez_compressed(path / f"episode_{i:06}_{steps}.npz", **episode(steps, i))
    return path


@pytest.fixture(scope="module")
def rollout() -> dict[str, dict[str, np.ndarray]]:
    """For each task the states of the physics, (301, 18), and the rewards that led to, (301,)."""
    pytest.importorskip("dm_control.suite", reason="dm_control is not installed (extra sim)")
    found = {}
    for task in exorl.TASKS:
        env = environments.make(f"dmc:walker-{task}")
        _, info = env.reset(seed=1)
        env.action_space.seed(1)
        physics, rewards = [info["physics"]], [0.0]
        for _ in range(300):
            _, reward, _, _, info = env.step(env.action_space.sample())
            physics.append(info["physics"])
            rewards.append(float(reward))
        found[task] = {"physics": np.array(physics), "reward": np.array(rewards)}
        env.close()
    return found


@pytest.mark.parametrize("task", exorl.TASKS)
def test_rewards_are_those_of_the_environment(rollout: Any, task: str) -> None:
    real = rollout[task]
    rewards = walker_rewards.rewards(task, real["physics"][1:])
    assert np.ptp(real["reward"]) > 0.05
    np.testing.assert_allclose(rewards, real["reward"][1:], atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("task", exorl.TASKS)
def test_rewards_of_states_that_a_rollout_does_not_meet(task: str) -> None:
    pytest.importorskip("dm_control.suite", reason="dm_control is not installed (extra sim)")
    env: Any = environments.make(f"dmc:walker-{task}")
    physics, rules = env._task.physics, env._task.task
    states = np.random.default_rng(2).normal(size=(200, 18)) * 3
    expected = []
    for state in states:
        with physics.reset_context():
            physics.set_state(state)
        expected.append(rules.get_reward(physics))
    assert np.ptp(expected) > 0.5
    np.testing.assert_allclose(
        walker_rewards.rewards(task, states), expected, atol=TOLERANCE, rtol=0
    )


def test_rewards_of_other_data() -> None:
    with pytest.raises(DataError, match="unknown task of the walker 'wlak'. Did you mean 'walk'"):
        walker_rewards.rewards("wlak", np.zeros((3, 18)))
    for wrong in (np.zeros((3, 14)), np.zeros(18), np.full((3, 18), "a")):
        with pytest.raises(DataError, match="for the walker only"):
            walker_rewards.rewards("walk", wrong)


def test_an_action_is_paired_with_the_observation_before_it(folder: Path) -> None:
    data = exorl.load_named(str(folder))
    assert data.names == ("states", "actions", "rewards")
    assert data.lengths.tolist() == [6, 4]
    first = data.episode(0)
    assert first["states"][:, 0].tolist() == [0.25, 1.25, 2.25, 3.25, 4.25, 5.25]
    assert (first["actions"][:, 0] * 100).round().tolist() == [1, 2, 3, 4, 5, 6]
    assert first["rewards"].tolist() == [1, 2, 3, 4, 5, 6]
    assert (data.metadata.env_id, data.metadata.source) == (None, "buffer")


def test_a_discount_of_0_is_a_terminal_state(folder: Path) -> None:
    assert exorl.load_directory(folder).terminated.tolist() == [False, False]
    failed = episode(4, 1)
    failed["discount"][-1] = 0
    np.savez_compressed(folder / "episode_000001_4.npz", **failed)
    assert exorl.load_directory(folder, task="walk").terminated.tolist() == [False, True]


def test_a_task_has_its_rewards_and_its_environment(folder: Path) -> None:
    data = exorl.load_named(f"walk:{folder}")
    assert (data.metadata.env_id, data.metadata.horizon) == ("dmc:walker-walk", 1000)
    states = np.concatenate([episode(6, 0)["physics"][1:], episode(4, 1)["physics"][1:]])
    expected = walker_rewards.rewards("walk", states).astype(np.float32)
    np.testing.assert_array_equal(data.arrays["rewards"], expected)


def test_what_is_read_can_be_written_as_npz(folder: Path, tmp_path: Path) -> None:
    data = exorl.load_directory(folder)
    write([(data, {})], tmp_path / "data.npz", "buffer")
    written = load(str(tmp_path / "data.npz"))
    assert written.fingerprint == data.fingerprint
    assert written.metadata.notes == data.metadata.notes == {"reward_source": "as stored"}


def test_relabelling_a_recording_gives_back_its_rewards(rollout: Any, tmp_path: Path) -> None:
    np.savez(tmp_path / "episode_0_300.npz", **(episode(300) | rollout["run"]))
    relabelled = exorl.load_directory(tmp_path, task="run").arrays["rewards"]
    stored = exorl.load_directory(tmp_path).arrays["rewards"]
    np.testing.assert_allclose(relabelled, stored, atol=TOLERANCE, rtol=0)


def test_rewards_are_kept_until_a_file_changes(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = exorl.load_directory(folder, task="run")
    calls = []
    real = walker_rewards.rewards
    monkeypatch.setattr(
        walker_rewards, "rewards", lambda *given: (calls.append(given), real(*given))[1]
    )
    assert exorl.load_directory(folder, task="run").fingerprint == first.fingerprint
    assert calls == []
    exorl.load_directory(folder, task="stand")
    assert len(calls) == 2
    np.savez_compressed(folder / "episode_000001_4.npz", **episode(4, seed=7))
    changed = exorl.load_directory(folder, task="run")
    assert len(calls) == 4
    assert changed.fingerprint != first.fingerprint
    assert {file.name for file in folder.iterdir() if file.suffix != ".npz"} == {
        ".mtm-rewards-run.cache",
        ".mtm-rewards-stand.cache",
    }


def test_rewards_are_made_again_after_their_formula_changed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exorl.load_directory(folder, task="run")
    monkeypatch.setattr(walker_rewards, "FORMULA", walker_rewards.FORMULA + 1)
    monkeypatch.setattr(walker_rewards, "rewards", lambda _, physics: np.full(len(physics), 7.0))
    assert (exorl.load_directory(folder, task="run").arrays["rewards"] == 7).all()


def test_a_damaged_cache_is_made_anew(folder: Path) -> None:
    first = exorl.load_directory(folder, task="run")
    cache = folder / ".mtm-rewards-run.cache"
    cache.write_bytes(cache.read_bytes()[:50])
    assert exorl.load_directory(folder, task="run").fingerprint == first.fingerprint
    assert cache.stat().st_size > 50


def test_rewards_that_cannot_be_kept(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    (folder / ".mtm-rewards-walk.cache").mkdir()  # as root, a folder's mode forbids nothing
    with caplog.at_level(logging.INFO):
        assert exorl.load_directory(folder, task="walk").num_steps == 10
    assert "rewards are not kept" in caplog.text
    assert len(list(folder.iterdir())) == 3  # nothing half-written is left


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder(folder: Path) -> None:
    folder.chmod(0o500)
    try:
        assert exorl.load_directory(folder, task="walk").num_steps == 10
    finally:
        folder.chmod(0o700)


def test_what_is_taken_for_exorl(folder: Path, tmp_path: Path) -> None:
    assert exorl.is_exorl(folder)
    other = tmp_path / "other"
    assert not exorl.is_exorl(other)
    other.mkdir()
    assert not exorl.is_exorl(other)
    np.savez(other / "a.npz", states=np.zeros((4, 1)), offsets=[0, 4])
    assert not exorl.is_exorl(other)
    (other / "a.npz").write_bytes(b"PK\3\4 no archive")
    assert not exorl.is_exorl(other)
    elsewhere = {key: value for key, value in episode(4).items() if key != "physics"}
    np.savez(other / "a.npz", **elsewhere)  # of a simulator that does not tell its physics
    assert exorl.is_exorl(other)


class Trap:
    """Unpickling one of these would be seen."""

    def __reduce__(self) -> Any:
        return (pytest.fail, ("a pickle was executed",))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"action": np.zeros((3, 6))}, "observation 5, action 3, discount 5, physics 5"),
        ({"physics": np.zeros((5, 14))}, r"000001_4.npz: rewards are computed for the walker only"),
        ({"observation": np.array([Trap()] * 5, object)}, "000001_4.npz cannot be read"),
        ({"observation": np.full((5, 24), np.nan)}, "modality 'states', episode 1, step 0"),
        ({"observation": np.zeros((5, 3))}, r"modality 'states' has shape \(3,\) in episode 1"),
        ({"observation": np.float32(1)}, "same number of rows"),
        ({key: value[:1] for key, value in episode(1).items()}, "2 or more"),
    ],
)
def test_bad_episodes(folder: Path, change: dict[str, Any], message: str) -> None:
    np.savez(folder / "episode_000001_4.npz", **(episode(4) | change))
    with pytest.raises(DataError, match=message):
        exorl.load_directory(folder, task="walk")


def test_specs_that_name_nothing(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="unknown task of ExORL's walker 'fly'.*Allowed: run"):
        exorl.load_named(f"fly:{folder}")
    with pytest.raises(DataError, match="unknown task"):
        exorl.load_directory(folder, task="fly")
    with pytest.raises(DataError, match="is not a directory"):
        exorl.load_named(str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match="holds no episodes of ExORL"):
        exorl.load_directory(tmp_path)


def compressed() -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **episode(3))
    return buffer.getvalue()


WHOLE = compressed()


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(place=st.integers(0, len(WHOLE) - 1), change=st.binary(min_size=1, max_size=6))
def test_wrong_bytes_load_or_say_why(tmp_path: Path, place: int, change: bytes) -> None:
    content = bytearray(WHOLE)
    content[place : place + len(change)] = change
    (tmp_path / "episode.npz").write_bytes(content)
    exorl.is_exorl(tmp_path)
    try:
        data = exorl.load_directory(tmp_path, task="walk")
    except DataError as error:
        message = str(error)
    else:
        message, _ = str(tmp_path), data.fingerprint
    assert str(tmp_path) in message
