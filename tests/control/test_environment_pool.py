"""Environments of other processes: on every platform, from any program, and none left behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mtm.control import environment_pool
from mtm.control.environment_pool import EnvironmentPool
from mtm.core.errors import RunError

pytest.importorskip("gymnasium", reason="the extra `sim` is not installed")
ENV = "point_mass_environment:PointMass-v0"
pytestmark = pytest.mark.usefixtures("_find_environments")


def test_processes_are_started_in_a_way_that_every_platform_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Popen(subprocess.Popen):
        """Refuses what Windows refuses."""

        def __init__(self, *arguments, **options) -> None:
            refused = {"pass_fds", "preexec_fn", "start_new_session", "process_group"}
            if found := refused & options.keys():
                raise ValueError(f"{found} not supported on Windows platforms")
            super().__init__(*arguments, **options)

    monkeypatch.setattr(subprocess, "Popen", Popen)
    monkeypatch.delenv("PYTHONPATH")  # this process can import what the pool needs without it
    with EnvironmentPool(ENV, 2, processes=2) as pool:
        pool.reset(np.arange(2), np.arange(2))
        assert pool.receive().states.shape == (2, 4)


def test_a_process_that_ends_at_once_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    with pytest.raises(RunError, match=r"PointMass-v0' ended with exit code 1"):
        EnvironmentPool(ENV, 4, processes=2)


def test_a_process_that_ends_on_the_way_is_told() -> None:
    with EnvironmentPool(ENV, 4, processes=2) as pool:
        pool.reset(np.arange(4), np.arange(4))
        pool.receive()
        first = pool._shards[0]._process
        first.kill()
        first.wait()
        with pytest.raises(RunError, match="ended with exit code -9"):
            pool.step(np.arange(4), np.zeros((4, 2), np.float32))


def test_a_process_that_ends_while_another_half_is_under_way_is_told() -> None:
    with EnvironmentPool(ENV, 6, processes=3) as pool:
        pool.reset(np.arange(6), np.arange(6))
        pool.receive()
        even, odd = np.arange(0, 6, 2), np.arange(1, 6, 2)  # each in all three processes
        pool.step(even, np.zeros((3, 2), np.float32))
        first = pool._shards[0]._process
        first.kill()
        first.wait()
        with pytest.raises(RunError, match="ended with exit code -9"):
            pool.step(odd, np.zeros((3, 2), np.float32))  # the first was still to answer
    assert all(shard._process.poll() is not None for shard in pool._shards)


@pytest.mark.parametrize("processes", [1, 2])
def test_an_action_that_is_no_number_ends_only_its_episode(processes: int) -> None:
    with EnvironmentPool(ENV, 4, processes=processes) as pool:
        pool.reset(np.arange(4), np.arange(4))
        pool.receive()
        actions = np.zeros((4, 2), np.float32)
        actions[2, 1] = np.nan
        pool.step(np.arange(4), actions)
        reports = pool.receive()
        assert list(reports.errors) == [2]
        assert "an action is no number" in reports.errors[2]
        assert reports.dones.tolist() == [False, False, True, False]


@pytest.mark.parametrize(
    ("cores", "count", "expected"), [(1, 500, 1), (2, 140, 2), (8, 63, 1), (8, 100, 2), (8, 400, 8)]
)
def test_processes_are_even_in_number(monkeypatch, cores: int, count: int, expected: int) -> None:
    """So that half of the environments are those of whole processes."""
    monkeypatch.setattr(environment_pool, "available_cores", lambda: cores)
    assert environment_pool.usual_processes(count) == expected


def test_all_processes_are_closed_though_one_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment_pool, "SECONDS_TO_STOP", 0.5)
    with EnvironmentPool(ENV, 4, processes=2) as pool:
        processes = [shard._process for shard in pool._shards]
        os.kill(processes[0].pid, signal.SIGSTOP)
    assert all(process.poll() is not None for process in processes)


def test_no_more_processes_than_environments() -> None:
    with EnvironmentPool(ENV, 2, processes=3) as pool:
        assert len(pool._shards) == 2
        pool.reset(np.arange(2), np.arange(2))
        assert pool.receive().states.shape == (2, 4)


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_some_environments_step_while_others_do(processes: int) -> None:
    """Reports come in the order of what was begun, whichever processes have a part in it."""
    halves = [np.arange(0, 6, 2), np.arange(1, 6, 2)]
    actions = np.random.default_rng(0).uniform(-1, 1, (6, 2)).astype(np.float32)
    with EnvironmentPool(ENV, 6, processes=1) as pool:
        pool.reset(np.arange(6), np.arange(6))
        begun = pool.receive()
        pool.step(np.arange(6), actions)
        stepped = pool.receive()
    with EnvironmentPool(ENV, 6, processes) as pool:
        for rows in halves:
            pool.reset(rows, rows)
        for rows in halves:
            np.testing.assert_array_equal(pool.receive().states, begun.states[rows])
            pool.step(rows, actions[rows])
        for rows in halves:
            reports = pool.receive()
            np.testing.assert_array_equal(reports.states, stepped.states[rows])
            np.testing.assert_array_equal(reports.rewards, stepped.rewards[rows])


WIDE = """
import gymnasium
import numpy as np

class Wide(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (100_000,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (100_000,), np.float32)

    def __init__(self, render_mode=None):
        pass

    def reset(self, *, seed=None, options=None):
        return np.zeros(100_000, np.float32), {}

    def step(self, action):
        return action, 0.0, False, False, {}

gymnasium.register("Wide-v0", Wide, max_episode_steps=3)
"""


def test_a_process_with_much_to_say_is_heard_before_it_is_told_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages of more than a pipe holds, in both directions."""
    (tmp_path / "wide_environment.py").write_text(WIDE)
    monkeypatch.syspath_prepend(str(tmp_path))
    rows = np.arange(3)
    with EnvironmentPool("wide_environment:Wide-v0", 3, processes=2) as pool:
        pool.reset(rows, rows)
        pool.receive()
        for row in rows:
            pool.step(np.array([row]), np.full((1, 100_000), row / 4, np.float32))
        for row in rows:
            assert set(np.unique(pool.receive().states)) == {row / 4}


PROGRAM = """
import numpy as np
from mtm.control.environment_pool import EnvironmentPool

with EnvironmentPool("beside:Beside-v0", 2, processes=2) as pool:
    pool.reset(np.arange(2), np.arange(2))
    pool.receive()
    for _ in range(3):
        pool.step(np.arange(2), np.zeros((2, 2), np.float32))
        reports = pool.receive()
print("rewards", reports.rewards.tolist())
"""

BESIDE = """
import os
import sys
import gymnasium
from point_mass_environment import PointMass

class Beside(PointMass):
    def step(self, action):
        print("printed by an environment")
        os.write(1, b"printed by a library under an environment\\n")
        assert sys.stdin.read() == ""
        state, _, terminated, truncated, info = super().step(action)
        return state, self.steps, terminated, truncated, info

gymnasium.register("Beside-v0", Beside)
"""


@pytest.mark.parametrize("given", ["a script", "standard input"])
def test_any_program_can_have_processes(given: str, tmp_path: Path) -> None:
    """Without a guard around its main part, with modules beside it, whatever prints."""
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    elsewhere.mkdir()
    (home / "beside.py").write_text(BESIDE)
    (home / "sitecustomize.py").write_text("print('printed by Python as it starts')")
    (home / "program.py").write_text(PROGRAM)
    script = given == "a script"
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    if not script:
        environment["PYTHONPATH"] = str(home) + os.pathsep + environment["PYTHONPATH"]
    done = subprocess.run(
        [sys.executable, str(home / "program.py") if script else "-"],
        input=None if script else PROGRAM,
        cwd=elsewhere,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "rewards [3.0, 3.0]"
    assert done.stderr.count("printed by an environment") == 6
    assert done.stderr.count("printed by a library") == 6


WAITING = f"""
import time
import numpy as np
from mtm.control.environment_pool import EnvironmentPool

with EnvironmentPool({ENV!r}, 2, processes=2) as pool:
    pool.reset(np.arange(2), np.arange(2))
    pool.receive()
    print("begun", flush=True)
    time.sleep(600)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("sent", ["SIGKILL", "SIGINT"])
def test_processes_end_with_the_one_that_started_them(sent: str) -> None:
    waiting = subprocess.Popen(
        [sys.executable, "-c", WAITING],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert waiting.stdout.readline() == "begun\n"
    if sent == "SIGKILL":
        waiting.kill()
    else:  # Ctrl-C reaches the workers too
        os.killpg(waiting.pid, signal.SIGINT)
    _, printed = waiting.communicate(timeout=20)  # till the last that can print there has ended
    assert printed.count("Traceback") == (sent == "SIGINT"), printed


SCALAR = """
import os
import gymnasium
import numpy as np

class Scalar(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self, render_mode=None):
        pass

    def reset(self, *, seed=None, options=None):
        return np.array(0.25, np.float32), {}

    def step(self, action):
        threads = float(os.environ.get("OPENBLAS_NUM_THREADS", 0))
        return np.array(-0.75, np.float32), threads, False, False, {}

gymnasium.register("Scalar-v0", Scalar, max_episode_steps=3)
"""


@pytest.mark.parametrize("processes", [1, 2])
def test_a_single_number_is_observed_as_it_is(
    processes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "scalar_environment.py").write_text(SCALAR)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "7")
    with EnvironmentPool("scalar_environment:Scalar-v0", 2, processes) as pool:
        pool.reset(np.arange(2), np.arange(2))
        reports = pool.receive()
        assert (reports.states.tolist(), reports.errors) == ([0.25, 0.25], {})
        pool.step(np.arange(2), np.zeros((2, 2), np.float32))
        reports = pool.receive()
    assert reports.states.tolist() == [-0.75, -0.75]
    assert reports.rewards.tolist() == [7 if processes == 1 else 1] * 2  # threads of a worker
