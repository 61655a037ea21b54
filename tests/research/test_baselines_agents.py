"""All agents: trained by one loop, resumable to the bit, acting in the same rollout."""

from __future__ import annotations

import json
import os
import shutil
import signal
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from mtm.cli import main
from mtm.control.rollout import rollout
from mtm.core.errors import ConfigError, DataError, MissingExtraError, RunError
from mtm.data import loading
from mtm.data.formats import builtin, store
from mtm.data.modalities import Modality
from mtm.data.normalizer import Normalizer
from mtm.data.terminations import terminal_endings
from mtm.data.trajectories import Metadata, TrajectoryDataset
from mtm.evaluation.evaluate import EvalConfig
from mtm.research.baselines.learner import make_learner
from mtm.research.baselines.replay import Scaling, Transitions
from mtm.research.baselines.settings import AGENTS, SCALES, AgentConfig, agent_config
from mtm.research.baselines.transitions import TransitionIndex, check_modalities
from mtm.runs import checkpoint
from mtm.runs.run import load_run
from mtm.training.trackers import read_metrics

pytest.importorskip("torchrl", reason="the extra `baselines` is not installed")
pytest.importorskip("gymnasium", reason="the extra `sim` is not installed")
from mtm.research.baselines import Agent, evaluate_agent, load_agent, train_agent
from mtm.research.baselines.td3_bc import TD3BC
from mtm.research.experiments.methods import Stopped
from mtm.research.experiments.spec import RunSpec
from mtm.research.experiments.train_agent import run as run_experiment

ENV = "point_mass_environment:PointMass-v0"
pytestmark = pytest.mark.usefixtures("_find_environments")


def brief(name: str) -> AgentConfig:
    return replace(agent_config(name, "tiny"), steps=12, checkpoint_every=6, log_every=4)


@pytest.fixture(scope="module", params=AGENTS)
def agent(request, tmp_path_factory, point_mass) -> Agent:
    out = tmp_path_factory.mktemp(request.param) / "agent"
    config = replace(agent_config(request.param, "tiny"), steps=60)
    return train_agent(request.param, point_mass, config, out, silent=True)


def test_rewards_are_known_by_their_role(point_mass, tmp_path: Path) -> None:
    pay = Modality("pay", (), role="reward")
    named = point_mass.select(["states", "actions"]).with_modality(
        pay, point_mass.arrays["rewards"]
    )
    for i, data in enumerate((named, point_mass)):
        train_agent("td3_bc", data, brief("td3_bc"), tmp_path / str(i), silent=True)
    one, other = saved(tmp_path / "0"), saved(tmp_path / "1")
    assert all(torch.equal(one[key], other[key]) for key in other)
    rewards = point_mass.arrays["rewards"]
    twice = named.with_modality(replace(pay, name="bonus"), rewards)
    with pytest.raises(DataError, match=r"learns from rewards: .* pay\[\] \(reward\), bonus"):
        train_agent("td3_bc", twice, brief("td3_bc"), tmp_path / "2", silent=True)


def saved(path: Path) -> dict[str, torch.Tensor]:
    loaded = checkpoint.load(path / "checkpoints")
    return loaded.model | {f"optimizer.{k}": v for k, v in loaded.optimizer.items()}


def equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def interrupt_after(patch: pytest.MonkeyPatch, step: int) -> None:
    """Let TD3+BC get the signal of Ctrl-C in a step, counted from 0."""
    real = TD3BC.after_step

    def after_step(self, now: int) -> None:
        real(self, now)
        if now == step:
            os.kill(os.getpid(), signal.SIGINT)

    patch.setattr(TD3BC, "after_step", after_step)


def with_endings(terminated: list[bool] | None, horizon: int | None = None) -> TrajectoryDataset:
    """Episodes of 3, 2 and 4 steps, whose states count the steps of the data set."""
    steps = np.arange(9, dtype=np.float32)
    return TrajectoryDataset.from_arrays(
        {"states": steps[:, None], "actions": -steps[:, None], "rewards": steps},
        [0, 3, 5, 9],
        metadata=Metadata(horizon=horizon),
        terminated=None if terminated is None else np.array(terminated),
    )


def index(data: TrajectoryDataset) -> TransitionIndex:
    return TransitionIndex(data, *check_modalities(data))


@pytest.mark.parametrize("name", AGENTS)
def test_a_resumed_agent_is_the_same_to_the_bit(point_mass, tmp_path, name: str) -> None:
    config = brief(name)
    train_agent(name, point_mass, config, tmp_path / "whole", silent=True)
    half = train_agent(name, point_mass, config, tmp_path / "parts", stop_at=6, silent=True)
    assert half.step == 6
    torch.manual_seed(99)
    expected = torch.rand(1)
    torch.manual_seed(99)
    train_agent(name, point_mass, config, tmp_path / "parts", resume=True, silent=True)
    assert torch.equal(torch.rand(1), expected)  # the caller's numbers are left alone
    whole, parts = saved(tmp_path / "whole"), saved(tmp_path / "parts")
    assert whole.keys() == parts.keys()
    assert [key for key in whole if not torch.equal(whole[key], parts[key])] == []
    rows = read_metrics(tmp_path / "parts" / "metrics.csv")
    assert [row["step"] for row in rows] == [4, 6, 8, 12]


def test_every_trained_weight_moves(agent: Agent, point_mass, tmp_path) -> None:
    config = agent.description.config
    train_agent(agent.name, point_mass, config, tmp_path / "one", stop_at=1, silent=True)
    first = checkpoint.load(tmp_path / "one" / "checkpoints").model
    last = checkpoint.load(agent.path / "checkpoints").model
    constants = ("gamma", "max_action", "min_action", "alpha_init", "entropy_buffer")
    constants += ("target_entropy", "dynamics.change_std", "reward_mean", "reward_std", "elites")
    constants += ("bins.edges",)
    still = [key for key in first if torch.equal(first[key], last[key])]
    assert [key for key in still if not key.endswith(constants)] == []


def test_a_batch_acts_as_its_rows_do_one_by_one(agent: Agent) -> None:
    rng = np.random.default_rng(0)
    states = rng.normal(size=(7, 3, 4)).astype(np.float32)  # more steps than dt's context
    rewards = rng.random((7, 3))
    together = agent.policy("fraction:1.0")
    together.reset(3)
    alone = [agent.policy("fraction:1.0") for _ in range(3)]
    for policy in alone:
        policy.reset(1)
    rows = np.arange(3)
    for step in range(7):
        chosen = together.act(states[step, rows])
        assert chosen.shape == (len(rows), 2)
        assert np.abs(chosen).max() <= 1
        for place, row in enumerate(rows):
            expected = alone[row].act(states[step, row : row + 1])
            assert chosen[place] == pytest.approx(expected[0], abs=1e-5)
        dones = np.array([row == 0 and step == 1 for row in rows])
        together.observe(rewards[step, rows], dones)
        for place, row in enumerate(rows):
            alone[row].observe(rewards[step, row : row + 1], dones[place : place + 1])
        if step == 3:
            together.keep(np.array([0, 2]))
            rows = rows[[0, 2]]


def test_an_agent_loads_and_acts_the_same(agent: Agent) -> None:
    again = load_agent(agent.path)
    first = rollout({"a": agent.policy()}, ENV, episodes=2)["a"].returns
    assert np.array_equal(first, rollout({"a": again.policy()}, ENV, episodes=2)["a"].returns)
    with pytest.raises(RunError, match=f"holds the agent '{agent.name}', not a masked model"):
        load_run(agent.path)
    if agent.name == "dt":
        return
    with pytest.raises(ConfigError, match=r"\(11,\).*\(4,\)"):
        rollout({"a": agent.policy()}, "Hopper-v5", episodes=1)


def test_an_agent_has_no_best_checkpoint(agent: Agent) -> None:
    assert load_agent(agent.path, 30).step == 30
    with pytest.raises(RunError, match=r"has no best checkpoint: .* Take the last"):
        load_agent(agent.path, "best")


def test_evaluation_has_the_stable_form(agent: Agent) -> None:
    result = evaluate_agent(agent, EvalConfig(episodes=2, env_id=ENV))
    roll = result["tasks"][agent.name]
    if agent.name == "dt":
        assert set(roll) == {"auto", "fixed", "sweep", "best"}
        best = max(agent.description.data["first_returns"])
        assert roll["fixed"]["target"] == pytest.approx(best)
        roll = roll["auto"]
    assert set(roll) == {"target", "episodes", "return", "score", "length", "success", "failures"}
    assert roll["episodes"] == 2
    assert result["step"] == 60
    said: list[str] = []
    assert evaluate_agent(agent, EvalConfig(), say=said.append)["tasks"] == {agent.name: None}
    assert "no environment" in said[0]


@pytest.mark.parametrize("agent", ["dt"], indirect=True)
def test_a_decision_transformer_looks_at_the_past_only(agent: Agent) -> None:
    K = agent.description.config.dt.context
    returns, states, actions = np.ones((1, K)), np.ones((1, K, 4)), np.ones((1, K, 2))
    before = agent.learner.act(returns, states, actions)  # type: ignore[operator]
    returns[:, 3:], states[:, 3:], actions[:, 2:] = 5.0, 5.0, 0.5
    after = agent.learner.act(returns, states, actions)  # type: ignore[operator]
    assert np.array_equal(before[:, :3], after[:, :3])
    assert not np.array_equal(before[:, 3], after[:, 3])


def test_transitions_stay_within_episodes() -> None:
    data = with_endings([True, False, True])
    normalizer = Normalizer.fit(data)
    transitions = Transitions(data, Scaling.of(data.modalities, normalizer))
    assert len(transitions.index) == 8  # all but the last step of the episode that was cut off
    batch = transitions.draw(500, seed=0, step=0)
    assert torch.equal(batch.states, transitions.draw(500, seed=0, step=0).states)
    assert not torch.equal(batch.states, transitions.draw(500, seed=0, step=1).states)
    now = normalizer.denormalize("states", batch.states).round().squeeze(1)
    after = normalizer.denormalize("states", batch.next_states).round().squeeze(1)
    ended = batch.terminated.squeeze(1)
    assert set(now.tolist()) == {0, 1, 2, 3, 5, 6, 7, 8}
    assert set(now[ended].tolist()) == {2, 8}
    assert torch.equal(after[~ended], now[~ended] + 1)
    assert torch.equal(batch.rewards.squeeze(1), now)
    assert batch.actions.min() == -1
    assert batch.actions.max() == 1


def test_who_terminated_is_told_by_the_source_else_by_the_horizon() -> None:
    told = with_endings([True, False, True], horizon=4)
    assert terminal_endings(told).tolist() == [True, False, True]
    assert terminal_endings(with_endings(None, horizon=4)).tolist() == [True, True, False]
    assert not terminal_endings(with_endings(None)).any()
    with pytest.warns(UserWarning, match="all are taken as ended by time"):
        index(with_endings(None))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(index(builtin.point_mass(3, 5))) == 3 * 4
    with pytest.raises(DataError, match="terminated must be 3 booleans"):
        with_endings([True])


def test_terminal_flags_survive_files_views_and_stores(tmp_path) -> None:
    file = tmp_path / "log.npz"
    terminals = np.array([0, 0, 1, 0, 0, 0, 0])
    timeouts = np.array([0, 0, 0, 0, 1, 0, 0])
    states = np.arange(7.0)[:, None]
    np.savez(file, observations=states, terminals=terminals, timeouts=timeouts)
    loaded = loading.load(str(file))
    assert loaded.terminated.tolist() == [True, False, False]  # the last one was cut off
    assert loaded.subset([2, 0]).select(["states"]).terminated.tolist() == [False, True]
    store.write_store([loaded, loaded], tmp_path / "store", "twice")
    opened = loading.load(str(tmp_path / "store"))
    assert opened.terminated.tolist() == [True, False, False] * 2
    silent = TrajectoryDataset.from_arrays({"states": states}, [0, 7])
    store.write_store([loaded, silent], tmp_path / "half", "one says it, one does not")
    assert loading.load(str(tmp_path / "half")).terminated is None
    hopper = builtin.hopper()
    assert hopper.terminated is not None
    assert not hopper.terminated[hopper.lengths == 1000].any()


def test_what_cannot_be_learned_from_is_refused(point_mass, tmp_path) -> None:
    out = tmp_path / "agent"
    with pytest.raises(ConfigError, match="unknown agent 'sac'"):
        train_agent("sac", point_mass, AgentConfig(), out)
    with pytest.raises(
        DataError, match="learns from rewards: a reward is the one modality of role"
    ):
        train_agent("iql", point_mass.select(["states", "actions"]), AgentConfig(), out)
    with pytest.raises(DataError, match="one continuous modality of role 'action'"):
        train_agent("iql", point_mass.select(["states", "rewards"]), AgentConfig(), out)
    assert not out.exists()


def test_a_directory_is_not_overwritten_nor_resumed_with_something_else(
    point_mass, tmp_path
) -> None:
    out, config = tmp_path / "agent", brief("iql")
    train_agent("iql", point_mass, config, out, silent=True)
    with pytest.raises(RunError, match="already holds a run"):
        train_agent("iql", point_mass, config, out, silent=True)
    other = replace(config, seed=3)
    with pytest.raises(RunError, match=r"(?s)agent: iql -> cql.*seed: 0 -> 3"):
        train_agent("cql", point_mass, other, out, resume=True, silent=True)


def test_a_directory_is_overwritten_where_that_is_asked_for(point_mass, tmp_path) -> None:
    out = tmp_path / "agent"
    train_agent("iql", point_mass, brief("iql"), out, silent=True)
    again = train_agent("td3_bc", point_mass, brief("td3_bc"), out, overwrite=True, silent=True)
    assert again.name == "td3_bc"
    train_agent("td3_bc", point_mass, brief("td3_bc"), tmp_path / "fresh", silent=True)
    assert equal(saved(out), saved(tmp_path / "fresh"))


def test_ctrl_c_saves_and_resumes_to_the_same_end(point_mass, tmp_path, monkeypatch) -> None:
    config = brief("td3_bc")
    train_agent("td3_bc", point_mass, config, tmp_path / "whole", silent=True)
    out = tmp_path / "parts"
    with monkeypatch.context() as patch:
        interrupt_after(patch, step=6)
        stopped = train_agent("td3_bc", point_mass, config, out, silent=True)
    assert stopped.step == 7
    train_agent("td3_bc", point_mass, config, out, stop_at=9, resume=True, silent=True)
    assert checkpoint.steps(out / "checkpoints") == [7, 9]
    train_agent("td3_bc", point_mass, config, out, resume=True, silent=True)
    assert equal(saved(out), saved(tmp_path / "whole"))


def test_an_experiment_that_is_stopped_has_no_result(tmp_path, monkeypatch) -> None:
    settings = {"agent": brief("td3_bc").to_json(), "evaluate": {"episodes": 1}}
    spec = RunSpec("td3_bc", "builtin:point-mass", 0, settings, "stopped")
    interrupt_after(monkeypatch, step=6)
    with pytest.raises(Stopped):
        run_experiment(spec, tmp_path / "work", ())


def test_only_sound_weights_are_saved(point_mass, tmp_path, monkeypatch) -> None:
    """Also where a checkpoint is due between two rows of metrics."""
    config = replace(brief("iql"), log_every=12, checkpoint_every=2)
    hot = replace(config, critic=replace(config.critic, learning_rate=1e30))
    with pytest.raises(RunError, match=r"by step \d\. (Nothing was saved|.* is sound)"):
        train_agent("iql", point_mass, hot, tmp_path / "hot", silent=True)

    def make_spoilt(*arguments):
        learner = make_learner(*arguments)
        next(learner.parameters()).register_hook(lambda gradient: gradient * np.nan)
        return learner

    monkeypatch.setattr("mtm.research.baselines.agent_training.make_learner", make_spoilt)
    config = replace(config, checkpoint_every=1)
    with pytest.raises(RunError, match="the norm of its gradient nan, by step 1"):
        train_agent("iql", point_mass, config, tmp_path / "spoilt", silent=True)
    assert checkpoint.steps(tmp_path / "spoilt" / "checkpoints") == []


def test_an_agent_of_an_older_format_loads(agent: Agent, tmp_path: Path) -> None:
    shutil.copytree(agent.path, tmp_path / "old")
    file = tmp_path / "old" / "config.json"
    plain = json.loads(file.read_text()) | {"format": 4}
    plain["config"]["reading"] |= {"columns": ["states=x,y"], "roles": []}
    file.write_text(json.dumps(plain))
    reading = load_agent(tmp_path / "old").description.config.reading
    assert (reading.columns, reading.roles) == ({"states": ("x", "y")}, {})


def test_settings_are_checked_together() -> None:
    with pytest.raises(ConfigError, match=r"(?s)2 fault.*dt.width 10 .* dt.heads 3.*steps"):
        AgentConfig.from_json({"steps": 0, "dt": {"width": 10, "heads": 3}})
    for scale, settings in SCALES.items():
        assert tuple(sorted(settings)) == tuple(sorted(AGENTS)), scale
    config = agent_config("cql", "paper")
    assert AgentConfig.from_json(json.loads(json.dumps(config.to_json()))) == config
    with pytest.raises(ConfigError, match="unknown scale 'huge'"):
        agent_config("dt", "huge")


def test_training_leaves_threads_and_terminal_alone(
    point_mass, tmp_path, monkeypatch, capfd
) -> None:
    monkeypatch.setenv("MTM_CORES", "1")
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal, where loading shows a bar
    folder = tmp_path / "exorl"
    folder.mkdir()
    for i in range(3):
        episode = point_mass.episode(i)
        n = len(episode["rewards"])
        np.savez(
            folder / f"{i}.npz",
            observation=episode["states"],
            action=episode["actions"],
            reward=episode["rewards"],
            discount=np.ones(n, np.float32),
        )
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        train_agent("iql", str(folder), brief("iql"), tmp_path / "agent", silent=True)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
    assert capfd.readouterr() == ("", "")


def test_a_missing_library_is_named(point_mass, tmp_path, monkeypatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "torchrl", None)
    with pytest.raises(MissingExtraError, match=r"masked-trajectory-models\[baselines\]"):
        train_agent("iql", point_mass, brief("iql"), tmp_path / "agent")
    assert not (tmp_path / "agent").exists()


def test_the_command_line_trains_resumes_and_evaluates(tmp_path, capsys) -> None:
    out = str(tmp_path / "agent")
    words = ["baseline", "td3_bc", "--data", "builtin:point-mass", "--out", out, "--scale", "tiny"]
    assert main([*words, "--steps", "4"]) == 0
    assert main([*words, "--steps", "8", "--stop-at", "6", "--resume"]) == 0
    assert main([*words, "--steps", "8"]) == 2
    assert "replace it with --overwrite" in capsys.readouterr().err
    assert main([*words, "--steps", "8", "--overwrite"]) == 0
    assert "td3_bc, step 8" in capsys.readouterr().out
    assert main(["eval", out, "--episodes", "2", "--env", ENV]) == 0
    assert "TD3+BC" in capsys.readouterr().out
    result = json.loads((tmp_path / "agent" / "evaluation.json").read_text())
    assert result["tasks"]["td3_bc"]["episodes"] == 2
    assert main(["eval", out, "--checkpoint", "best"]) == 2
    assert "has no best checkpoint" in capsys.readouterr().err
    assert main(["baseline", "--data", "builtin:point-mass", "--out", out, "iql"]) == 2
    assert "say the agent first: mtm baseline iql" in capsys.readouterr().err


def test_an_agent_chooses_its_device(tmp_path: Path, capsys) -> None:
    words = ["baseline", "iql", "--data", "builtin:point-mass", "--scale", "tiny"]
    assert main([*words, "--out", str(tmp_path / "x"), "--device", "nowhere"]) == 2
    assert "the device 'nowhere' cannot be used here" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()
