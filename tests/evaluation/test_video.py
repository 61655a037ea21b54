"""A film shows the episode that was counted, and calls a bug a bug."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from mtm.control import environments
from mtm.control.rendering import why_no_frames
from mtm.control.rollout import rollout
from mtm.core.errors import ConfigError
from mtm.evaluation.report.video import LONGEST, Film, film_of

pytest.importorskip("gymnasium", reason="the extra `sim` is not installed")
pytest.importorskip("PIL", reason="the extra `report` is not installed")
pytestmark = pytest.mark.usefixtures("_find_environments")
ENV = "point_mass_environment:PointMass-v0"


class Wild:
    """A policy of one's own, whose actions leave the bounds."""

    def reset(self, n: int) -> None:
        pass

    def act(self, states: np.ndarray) -> np.ndarray:
        return -5 * states[:, :2] - 3 * states[:, 2:]

    def observe(self, rewards: np.ndarray, dones: np.ndarray) -> None:
        pass

    def keep(self, rows: np.ndarray) -> None:
        pass


def played_by_hand(seed: int, bound: float) -> float:
    """The return of one episode whose actions are clipped to some bounds."""
    env = environments.make(ENV)
    state, _ = env.reset(seed=seed)
    total, done = 0.0, False
    while not done:
        action = np.clip(Wild().act(state[None])[0], -bound, bound)
        state, reward, terminated, done, _ = env.step(action)
        total += float(reward)
        assert not terminated
    return total


def test_a_film_shows_the_first_episode(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    watched = rollout(
        {"wild": Wild(), "other": Wild()},
        ENV,
        episodes=3,
        seed=5,
        watch=lambda step, draw: seen.append((step, int(draw()[0, 0, 0]))),
    )["wild"]
    unwatched = rollout({"wild": Wild()}, ENV, episodes=3, seed=5)["wild"]
    np.testing.assert_array_equal(watched.returns, unwatched.returns)
    np.testing.assert_array_equal(watched.lengths, unwatched.lengths)
    assert watched.returns[0] == played_by_hand(5, bound=1)
    assert watched.returns[0] != played_by_hand(5, bound=np.inf)
    assert seen == [(step, step) for step in range(watched.lengths[0] + 1)]


def test_a_film_is_written(tmp_path: Path) -> None:
    from PIL import Image

    film = film_of(ENV, tmp_path / "film.gif")
    rollout({"wild": Wild()}, ENV, episodes=2, watch=film)
    assert film.save() == f"{tmp_path / 'film.gif'}: 11 frames"
    with Image.open(tmp_path / "film.gif") as written:
        assert (written.n_frames, written.size) == (11, (240, 180))


def test_a_film_is_not_longer_than_one_looks(tmp_path: Path) -> None:
    film = Film(tmp_path / "film.gif")
    for step in range(3 * LONGEST):
        film(step, lambda: np.zeros((4, 4, 3), np.uint8))
    assert len(film.pictures) == LONGEST


def test_a_bug_is_not_taken_for_a_missing_back_end(tmp_path: Path) -> None:
    class Faulty(Wild):
        def act(self, states: np.ndarray) -> np.ndarray:
            raise AttributeError("a bug in a policy")

    with pytest.raises(AttributeError, match="a bug in a policy"):
        rollout({"faulty": Faulty()}, ENV, episodes=1, watch=film_of(ENV, tmp_path / "film.gif"))
    blind = "point_mass_environment:Blind-v0"
    with pytest.raises(RuntimeError, match="a bug in an environment"):
        rollout({"wild": Wild()}, blind, episodes=1, watch=film_of(blind, tmp_path / "film.gif"))


def test_an_episode_that_fails_is_shown_until_then(tmp_path: Path) -> None:
    fragile = "point_mass_environment:Fragile-v0"
    film = film_of(fragile, tmp_path / "film.gif")
    episodes = rollout({"wild": Wild()}, fragile, episodes=2, seed=0, watch=film)["wild"]
    assert [(f.seed, f.step) for f in episodes.failures] == [(0, 2)]
    assert film.save().endswith("2 frames")
    assert "failed before its first frame" in Film(tmp_path / "none.gif").save()
    assert not (tmp_path / "none.gif").exists()


def test_what_gives_no_frames_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    assert film_of("point_mass_environment:Dark-v0", tmp_path / "film.gif", said.append) is None
    assert "render modes are human, and rgb_array is needed" in said[0]
    monkeypatch.setitem(sys.modules, "pygame", None)
    assert "pygame is not installed" in why_no_frames("CartPole-v1")
    with pytest.raises(ConfigError, match="got 2 processes"):
        rollout({"wild": Wild()}, ENV, processes=2, watch=Film(tmp_path / "film.gif"))


def test_the_camera_goes_along() -> None:
    """Far from where it began, the hopper is still in the picture."""
    if (missing := why_no_frames("Hopper-v5")) is not None:
        pytest.skip(missing)
    env = environments.make("Hopper-v5", render=True)
    env.reset(seed=0)
    simulation = env.unwrapped
    near = env.render()
    position = simulation.data.qpos.copy()
    position[0] += 20.0
    simulation.set_state(position, simulation.data.qvel)
    far = env.render()
    env.close()
    brown = [(f[..., 0].astype(int) - f[..., 2] > 40).sum() for f in (near, far)]
    assert brown[0] > 1000
    assert brown[1] == pytest.approx(brown[0], rel=0.2)
