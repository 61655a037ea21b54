"""How well `mtm doctor` ranks episodes with planted faults, beside what one would try instead.

    python -m benchmarks.planted_faults DATA... --seeds 100 101 --shares 0.01 0.02 0.05

Average precision of the ranking for five kinds of faults and a mix of them. The rivals are an
isolation forest on raw steps and jerk, each with the better of its mean and its maximum over an
episode. It needs the extras `sim` and `dev`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import mtm
from mtm.data.trajectories import TrajectoryDataset

Floats = NDArray[np.float64]
Episode = dict[str, NDArray[Any]]

EPISODES = 100
"""Of a set, drawn anew for each seed."""
CONTEXT_STEPS = 20_000
"""Recorded steps that the other robot's policy is cloned from."""


def shifted_action(episode: Episode, rng: np.random.Generator) -> None:
    """One column of the actions comes a step late."""
    column = _lively(episode["actions"], rng, 1)[0]
    episode["actions"][1:, column] = episode["actions"][:-1, column].copy()


def swapped_sensors(episode: Episode, rng: np.random.Generator) -> None:
    """Two columns of the states change places."""
    pair = _lively(episode["states"], rng, 2)
    episode["states"][:, pair] = episode["states"][:, pair[::-1]]


def stuck_joint(episode: Episode, rng: np.random.Generator) -> None:
    """One column of the states stays at a value for a fifth to all of the rest of the episode."""
    column, steps = _lively(episode["states"], rng, 1)[0], len(episode["states"])
    begin = int(rng.integers(0, max(steps // 2, 1)))
    end = begin + max(int(rng.uniform(0.2, 1.0) * (steps - begin)), 3)
    episode["states"][begin:end, column] = episode["states"][begin, column]


def noise_burst(episode: Episode, rng: np.random.Generator) -> None:
    """One to three times, three to ten steps of the states are noisy."""
    states = episode["states"]
    size = states.std(axis=0) * rng.uniform(0.3, 1.0)
    for _ in range(int(rng.integers(1, 4))):
        begin = int(rng.integers(0, max(len(states) - 3, 1)))
        part = states[begin : begin + int(rng.integers(3, 11))]
        part += (rng.normal(size=part.shape) * size).astype(part.dtype)


IN_PLACE: dict[str, Callable[[Episode, np.random.Generator], None]] = {
    "shifted action": shifted_action,
    "swapped sensors": swapped_sensors,
    "stuck joint": stuck_joint,
    "noise burst": noise_burst,
}
KINDS = (*IN_PLACE, "other robot", "mixed")


class OtherRobot:
    """The environment of a data set with other masses and motors, and a policy cloned of the data.

    Args:
        dataset: Names the environment, and has `states` and `actions`.
        rng: Draws the robot, and the recorded steps that the policy looks up.
    """

    def __init__(self, dataset: TrajectoryDataset, rng: np.random.Generator) -> None:
        import gymnasium
        import gymnasium_robotics
        from sklearn.neighbors import KNeighborsRegressor

        gymnasium.register_envs(gymnasium_robotics)
        assert dataset.metadata.env_id is not None
        self.environment = gymnasium.make(dataset.metadata.env_id)
        model: Any = self.environment.unwrapped.model  # type: ignore[attr-defined]
        model.body_mass[:] *= rng.uniform(1.3, 1.6)
        model.body_inertia[:] *= rng.uniform(1.3, 1.6)
        model.actuator_gear[:] *= rng.uniform(0.7, 0.8)
        steps = np.sort(rng.choice(dataset.num_steps, min(CONTEXT_STEPS, dataset.num_steps), False))
        self.scale = dataset.arrays["states"].std(axis=0) + 1e-6
        self.policy = KNeighborsRegressor(3)
        self.policy.fit(
            dataset.arrays["states"][steps] / self.scale, dataset.arrays["actions"][steps]
        )

    def episode(self, length: int, rng: np.random.Generator) -> Episode:
        """An episode of this robot, no longer than that."""
        state, _ = self.environment.reset(seed=int(rng.integers(2**31)))
        states, actions, rewards, ended = [], [], [], False
        while not ended and len(states) < length:
            action = self.policy.predict((state / self.scale)[None])[0].astype(np.float32)
            states.append(state)
            actions.append(action)
            state, reward, terminated, _, _ = self.environment.step(action)
            rewards.append(float(reward))
            ended = terminated
        return {
            "states": np.array(states, np.float32),
            "actions": np.array(actions, np.float32),
            "rewards": np.array(rewards, np.float32),
        }


def planted(
    dataset: TrajectoryDataset, kind: str, share: float, seed: int, count: int = EPISODES
) -> tuple[TrajectoryDataset, NDArray[np.bool_]]:
    """A part of a data set with a fault in a share of its episodes, and which those are."""
    rng = np.random.default_rng([seed, KINDS.index(kind), round(1000 * share)])
    long = np.flatnonzero(dataset.lengths >= 20)
    chosen = np.sort(rng.choice(long, min(count, len(long)), replace=False))
    episodes = [dataset.episode(int(e)) for e in chosen]
    faulty = np.zeros(len(episodes), bool)
    faulty[rng.choice(len(episodes), max(round(share * len(episodes)), 1), replace=False)] = True
    robot: OtherRobot | None = None
    for number, e in enumerate(np.flatnonzero(faulty)):
        what = KINDS[number % 5] if kind == "mixed" else kind
        if what in IN_PLACE:
            IN_PLACE[what](episodes[e], rng)
            continue
        robot = robot or OtherRobot(dataset, rng)
        episodes[e] = robot.episode(len(episodes[e]["states"]), rng)
    data = TrajectoryDataset.from_episodes(episodes, metadata=dataset.metadata)
    return data, faulty


def average_precision(scores: Floats, faulty: NDArray[np.bool_]) -> float:
    """The mean over faulty episodes of the share of faulty ones down to each; ties are lost."""
    order = np.lexsort((faulty, -scores))
    hits = faulty[order]
    found = np.cumsum(hits) / np.arange(1, len(hits) + 1)
    return float(found[hits].mean())


def by_doctor(dataset: TrajectoryDataset) -> dict[str, Floats]:
    """The score of `mtm.doctor`, with its defaults."""
    scores = np.zeros(dataset.num_episodes)
    for episode in mtm.doctor(dataset, silent=True).episodes:
        scores[episode.episode] = episode.score
    return {"doctor": scores}


def by_isolation_forest(dataset: TrajectoryDataset) -> dict[str, Floats]:
    """How easily steps are cut off from all others."""
    from sklearn.ensemble import IsolationForest

    steps = np.hstack([dataset.arrays["states"], dataset.arrays["actions"]])
    odd = -IsolationForest(random_state=0).fit(steps).score_samples(steps)
    return _over_episodes("isolation forest", dataset, odd)


def by_jerk(dataset: TrajectoryDataset) -> dict[str, Floats]:
    """Third differences of states and actions, in units of their standard deviation."""
    values = np.hstack([dataset.arrays["states"], dataset.arrays["actions"]])
    values = values / (values.std(axis=0) + 1e-9)
    jerk = np.zeros(len(values))
    jerk[3:] = np.abs(np.diff(values, n=3, axis=0)).mean(axis=1)
    for start in dataset.starts:
        jerk[start : start + 3] = 0
    return _over_episodes("jerk", dataset, jerk)


METHODS = (by_doctor, by_isolation_forest, by_jerk)


def measure(
    spec: str, seeds: Sequence[int], shares: Sequence[float], kinds: Sequence[str], count: int
) -> list[dict[str, Any]]:
    """A row for each kind of fault, share and seed, of so many episodes."""
    dataset = mtm.load_dataset(spec)
    rows = []
    for kind in kinds:
        for share in shares:
            for seed in seeds:
                data, faulty = planted(dataset, kind, share, seed, count)
                row: dict[str, Any] = {"data": Path(spec).stem, "kind": kind}
                row |= {"share": share, "seed": seed, "steps": data.num_steps}
                for method in METHODS:
                    began = time.perf_counter()
                    found = {n: average_precision(s, faulty) for n, s in method(data).items()}
                    row |= found | {f"{method.__name__} seconds": time.perf_counter() - began}
                rows.append(row)
                print(json.dumps(row), flush=True)
    return rows


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", nargs="+")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--shares", type=float, nargs="+", default=[0.01, 0.02, 0.05])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--episodes", type=int, default=EPISODES)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rows = [
        row
        for spec in arguments.data
        for row in measure(
            spec, arguments.seeds, arguments.shares, arguments.kinds, arguments.episodes
        )
    ]
    _print(rows)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


def _print(rows: Sequence[dict[str, Any]]) -> None:
    """Means over shares and seeds; of the rivals, the better of their two."""
    print(f"{'data':20}{'fault':18}{'doctor':>8}{'forest':>8}{'jerk':>8}")
    for data in dict.fromkeys(row["data"] for row in rows):
        for kind in dict.fromkeys(row["kind"] for row in rows):
            mine = [row for row in rows if (row["data"], row["kind"]) == (data, kind)]
            means = [
                max(np.mean([row[n] for row in mine]) for n in rows[0] if n.startswith(method))
                for method in ("doctor", "isolation forest", "jerk")
            ]
            print(f"{data:20}{kind:18}" + "".join(f"{mean:8.2f}" for mean in means))


def _lively(values: NDArray[Any], rng: np.random.Generator, count: int) -> NDArray[np.int64]:
    """Columns that change at most steps, so that a fault in them is one."""
    changing = (np.diff(values, axis=0) != 0).mean(axis=0) > 0.5
    return rng.choice(np.flatnonzero(changing), count, replace=False)


def _over_episodes(name: str, dataset: TrajectoryDataset, steps: Floats) -> dict[str, Floats]:
    parts = np.split(steps, dataset.starts[1:])
    return {
        f"{name}, mean": np.array([part.mean() for part in parts]),
        f"{name}, maximum": np.array([part.max() for part in parts]),
    }


if __name__ == "__main__":
    main()
