"""TD3 on states and on encodings: what is trained, what is not, and that it can be continued."""

from __future__ import annotations

import csv
import importlib
import itertools
import json
import os
import signal
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

pytest.importorskip("torchrl", reason="the extra `baselines` is not installed")
pytest.importorskip("gymnasium", reason="the extra `sim` is not installed")

from mtm.core.config import preset
from mtm.core.errors import ConfigError, DataError, RunError
from mtm.data.formats import walker_rewards
from mtm.data.trajectories import TrajectoryDataset
from mtm.inference import queries
from mtm.research.baselines import load_agent
from mtm.research.baselines.td3 import train_td3
from mtm.research.baselines.td3_agent import TD3Agent
from mtm.research.baselines.td3_config import VARIANTS, TD3Config, td3_preset
from mtm.research.baselines.td3_curve import (
    Point,
    area,
    final_return,
    first_to_reach,
    mean_curve,
    read_curve,
)
from mtm.research.baselines.td3_data import EncodedTransitions
from mtm.research.experiments.methods import Stopped
from mtm.research.experiments.representation import UNITS
from mtm.research.experiments.reproduce import Order, reproduce
from mtm.research.experiments.spec import RunSpec
from mtm.research.experiments.train_td3 import run as run_experiment
from mtm.runs import checkpoint
from mtm.runs.run import Run, load_run
from mtm.training.train import train

importlib.import_module("point_mass_environment")  # data may name what is imported already
ENV = "point_mass_environment:PointMass-v0"
pytestmark = pytest.mark.usefixtures("_find_environments")
LOW, HIGH = -np.ones(2, np.float32), np.ones(2, np.float32)


@pytest.fixture(scope="module")
def data(point_mass) -> TrajectoryDataset:
    return point_mass.with_metadata(env_id=ENV)


@pytest.fixture(scope="module")
def run(tmp_path_factory, point_mass) -> Run:
    config = replace(preset("tiny"), steps=20, modalities=("states", "actions"))
    return train(point_mass, config, tmp_path_factory.mktemp("r") / "run", silent=True)


def settings_for(variant: str, **changes: Any) -> TD3Config:
    return replace(td3_preset("tiny"), variant=variant, **changes)


def make_agent(
    config: TD3Config, run: Run, data: TrajectoryDataset
) -> tuple[TD3Agent, EncodedTransitions]:
    torch.manual_seed(config.seed)
    agent = TD3Agent(config, 4, LOW, HIGH, None if config.variant == "raw" else run)
    return agent, agent.transitions(data)


def take(agent: TD3Agent, batches: EncodedTransitions, steps: range) -> None:
    for step in steps:
        agent.update(batches.batch(32, (0.2, 0.3), 0, step))


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_an_update_changes(run, data, variant) -> None:
    agent, batches = make_agent(settings_for(variant), run, data)
    before = {name: t.clone() for name, t in agent.state_dict().items()}
    take(agent, batches, range(3))
    after = agent.state_dict()
    changed = {
        name for name in before if before[name].numpy().tobytes() != after[name].numpy().tobytes()
    }
    encoding = {name for name in before if "transformer" in name or "embeddings" in name}
    assert bool(encoding) == (variant not in ("raw", "normalized"))
    if variant.endswith("finetuned"):  # of actor, critics and the targets of both
        assert encoding <= changed
        places = {name.partition(".transformer")[0] for name in encoding if "transformer" in name}
        assert len(places) == 4
        assert sum("target_" in place for place in places) == 2
    else:
        assert not encoding & changed
    bodies = {n for n in before if ".body." in n or "qvalue_network_params" in n}
    assert bodies <= changed
    assert not {n for n in changed if "mean_" in n or "std_" in n}


@pytest.mark.parametrize("variant", VARIANTS)
def test_targets_hold_copies_that_follow(run, data, variant) -> None:
    config = settings_for(variant, target_rate=0.25)
    agent, batches = make_agent(config, run, data)
    online, buffers = dict(agent.loss.named_parameters()), dict(agent.loss.named_buffers())
    before = {name: buffers[f"target_{name}"].clone() for name in online}
    take(agent, batches, range(1))
    for name, weights in online.items():
        target = buffers[f"target_{name}"]
        assert target.data_ptr() != weights.data_ptr()
        expected = torch.lerp(before[name], weights.detach(), 0.25)
        torch.testing.assert_close(target, expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("variant", VARIANTS)
def test_losses_and_gradients_are_torchrls(run, data, variant) -> None:
    agent, batches = make_agent(settings_for(variant, target_rate=0.25), run, data)
    take(agent, batches, range(3))  # so that targets differ from what they follow
    trained = {"critic": agent._of_critics, "actor": agent._of_actor}

    def losses() -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
        batch = batches.batch(32, (0.2, 0.3), 0, 7)
        if batch.get("pair", None) is None:
            batch["pair"] = agent._networks[1](batch["state"], batch["action"])
        torchs = {"critic": agent.loss.value_loss, "actor": agent.loss.actor_loss}
        mine = {"critic": agent.critic_loss, "actor": agent.actor_loss}
        return {key: (mine[key](batch), torchs[key](batch)[0]) for key in mine}

    for key, (mine, its) in losses().items():
        torch.testing.assert_close(mine, its, rtol=1e-5, atol=1e-6)
        found = [
            torch.autograd.grad(loss, trained[key], retain_graph=True, allow_unused=True)
            for loss in (mine, its)
        ]
        for one, other in zip(*found, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-6)


def test_only_the_critics_train_their_encoder(run, data) -> None:
    """The actor would bend it so that its own actions look good."""
    for variant in ("state-finetuned", "state-action-finetuned"):
        agent, batches = make_agent(settings_for(variant), run, data)
        pair = agent._networks[1]
        batch = batches.batch(32, (0.2, 0.3), 0, 0)
        batch["pair"] = pair(batch["state"], batch["action"])
        agent.loss.value_loss(batch)[0].backward(inputs=agent._of_critics)
        expected = [p.grad.clone() for p in pair.parameters()]
        agent.update(batches.batch(32, (0.2, 0.3), 0, 0))
        for p, gradient in zip(pair.parameters(), expected, strict=True):
            torch.testing.assert_close(p.grad, gradient)


def test_encodings_are_cached_once(run, data) -> None:
    states, actions = data.arrays["states"], data.arrays["actions"]
    latent = queries.represent(run, states)
    _, batches = make_agent(settings_for("state-frozen"), run, data)
    np.testing.assert_allclose(batches.observations.numpy(), latent, atol=1e-5)
    assert batches.states is batches.observations
    agent, batches = make_agent(settings_for("state-action-frozen"), run, data)
    np.testing.assert_allclose(batches.observations.numpy(), latent, atol=1e-5)
    np.testing.assert_array_equal(batches.states.numpy(), states)
    joint = queries.represent(run, states, actions)
    np.testing.assert_allclose(batches.pairs.numpy(), joint, atol=1e-5)
    # What is cached is what the critics are given for the actor's actions.
    batch = batches.batch(32, (0.2, 0.3), 0, 0)
    live = agent._networks[1](batch["state"], batch["action"])
    torch.testing.assert_close(live, batch["pair"], atol=1e-5, rtol=0)


def test_batches(run, data) -> None:
    _, batches = make_agent(settings_for("raw"), run, data)
    batch = batches.batch(512, (0.2, 0.3), 0, 7)
    again = batches.batch(512, (0.2, 0.3), 0, 7)
    assert (batch == again).all()
    assert not (batch == batches.batch(512, (0.2, 0.3), 0, 8)).all()
    rows = [
        int(np.flatnonzero((data.arrays["states"] == s).all(axis=1))[0])
        for s in batch["state"].numpy()
    ]
    np.testing.assert_array_equal(data.arrays["states"][np.add(rows, 1)], batch["next", "state"])
    np.testing.assert_array_equal(data.arrays["rewards"][rows], batch["next", "reward"][:, 0])
    assert not set(rows) & set(data.ends - 1)  # no transition leads into another episode
    noise = batch["next", "noise"]
    assert noise.abs().max() == pytest.approx(0.3)
    assert 0.1 < noise.std() < 0.2
    assert not batch["noise"].any()


def test_nothing_follows_a_terminal_state(run, data) -> None:
    """The last step of an episode is drawn if it ended there; its value is its reward alone."""
    ended = data.subset(range(data.num_episodes))
    ended.terminated = np.arange(data.num_episodes) % 2 == 0
    agent, batches = make_agent(settings_for("raw"), run, ended)
    batch = batches.batch(2000, (0.2, 0.3), 0, 0)
    last = {s.tobytes() for s in data.arrays["states"][data.ends[ended.terminated] - 1]}
    terminal = np.array([s.tobytes() in last for s in batch["state"].numpy()])
    assert terminal.any()
    np.testing.assert_array_equal(batch["next", "terminated"][:, 0].numpy(), terminal)
    np.testing.assert_array_equal(batch["next", "done"], batch["next", "terminated"])
    critics = batches.batch(2000, (0.2, 0.3), 0, 0)
    critics["pair"] = agent._networks[1](critics["state"], critics["action"])
    aims = agent.loss.value_loss(critics)[1]["target_value"]
    rewards = batch["next", "reward"][:, 0]
    terminal = torch.from_numpy(terminal)
    torch.testing.assert_close(aims[terminal], rewards[terminal])
    assert not torch.isclose(aims[~terminal], rewards[~terminal]).any()


def test_what_the_variants_without_pretraining_read(run, data) -> None:
    states = torch.from_numpy(data.arrays["states"][:50])
    statistics = run.normalizer.statistics["states"]
    _, batches = make_agent(settings_for("normalized"), run, data)
    expected = (states - torch.tensor(statistics.mean)) / torch.tensor(statistics.std)
    torch.testing.assert_close(batches.observations[:50], expected)
    trained, _ = make_agent(settings_for("state-frozen"), run, data)
    drawn, _ = make_agent(settings_for("untrained-frozen"), run, data)
    again, _ = make_agent(settings_for("untrained-frozen"), run, data)
    other, _ = make_agent(settings_for("untrained-frozen", seed=1), run, data)
    encoded = [a.observer(states) for a in (trained, drawn, again, other)]
    assert encoded[0].shape == encoded[1].shape
    assert not torch.isclose(encoded[0], encoded[1], atol=1e-3).all()
    torch.testing.assert_close(encoded[1], encoded[2], atol=0, rtol=0)
    assert not torch.isclose(encoded[1], encoded[3], atol=1e-3).all()
    tuned, _ = make_agent(settings_for("untrained-finetuned"), run, data)
    of_actor, of_critics = tuned.encoders  # one drawing for both
    for mine, theirs in zip(of_actor.parameters(), of_critics.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, atol=0, rtol=0)


def test_the_policy_acts_as_the_actor_does(run, data) -> None:
    for variant in VARIANTS:
        agent, batches = make_agent(settings_for(variant), run, data)
        states = data.arrays["states"][:5]
        chosen = agent.act(states)
        expected = agent.policy(batches.observations[:5], torch.zeros(())).detach().numpy()
        np.testing.assert_allclose(chosen, expected, atol=1e-5)
        assert (np.abs(chosen) <= 1).all()


@pytest.mark.parametrize("variant", ["raw", "state-action-finetuned"])
def test_a_run_goes_on_as_if_it_had_not_stopped(run, data, tmp_path, variant) -> None:
    pretrained = None if variant == "raw" else run
    config = settings_for(variant, evaluate_every=5)
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    curve = train_td3(data, config, whole, encoder_run=pretrained, silent=True)
    half = replace(config, updates=10)
    train_td3(data, half, halves, encoder_run=pretrained, silent=True)
    torch.manual_seed(99)  # what others draw meanwhile has no influence
    resumed = train_td3(data, config, halves, encoder_run=pretrained, resume=True, silent=True)
    assert [p.updates for p in curve] == [5, 10, 15, 20]
    assert [p.return_mean for p in resumed] == [p.return_mean for p in curve]
    for name in ("model", "optimizer"):
        files = [p / f"checkpoints/step-000000020/{name}.safetensors" for p in (whole, halves)]
        assert files[0].read_bytes() == files[1].read_bytes()
    assert checkpoint.steps(whole / "checkpoints") == [20]
    with (whole / "curve.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == [
        "step",
        "seconds",
        "return_mean",
        "return_std",
        "critic_loss",
        "actor_loss",
    ]
    assert [int(row["step"]) for row in rows] == [5, 10, 15, 20]
    assert read_curve(whole) == curve


def test_ctrl_c_saves_and_resumes_to_the_same_curve(data, tmp_path, monkeypatch) -> None:
    config = settings_for("raw", evaluate_every=5)
    whole = train_td3(data, config, tmp_path / "whole", silent=True)
    out, real, calls = tmp_path / "parts", TD3Agent.update, itertools.count(1)

    def update(self, batch):
        if next(calls) in (3, 10):  # the third update, then the seventh of the second sitting
            os.kill(os.getpid(), signal.SIGINT)
        return real(self, batch)

    monkeypatch.setattr(TD3Agent, "update", update)
    assert train_td3(data, config, out, silent=True) == []  # no evaluation yet
    assert checkpoint.steps(out / "checkpoints") == [3]
    assert [p.updates for p in train_td3(data, config, out, resume=True, silent=True)] == [5, 10]
    resumed = train_td3(data, config, out, resume=True, silent=True)
    assert [p.updates for p in resumed] == [5, 10, 15, 20]
    assert [p.return_mean for p in resumed] == [p.return_mean for p in whole]
    files = [p / "checkpoints/step-000000020/model.safetensors" for p in (out, tmp_path / "whole")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_a_stopped_experiment_has_no_result(data, tmp_path, monkeypatch) -> None:
    real = TD3Agent.update

    def update(self, batch):
        os.kill(os.getpid(), signal.SIGTERM)
        return real(self, batch)

    monkeypatch.setattr(TD3Agent, "update", update)
    settings = {"td3": asdict(settings_for("raw"))}
    with pytest.raises(Stopped):
        run_experiment(RunSpec("td3", data, 0, settings, "stopped"), tmp_path / "work", ())


def test_overwriting_begins_anew(data, tmp_path) -> None:
    out = tmp_path / "run"
    train_td3(data, settings_for("raw", seed=3), out, silent=True)
    again = train_td3(data, settings_for("raw"), out, overwrite=True, silent=True, stop_at=10)
    assert [p.updates for p in again] == [10]
    assert json.loads((out / "config.json").read_text())["td3"]["seed"] == 0
    assert checkpoint.steps(out / "checkpoints") == [10]


def test_it_learns_the_point_mass(data, tmp_path) -> None:
    config = TD3Config(
        updates=400,
        batch_size=64,
        hidden=32,
        learning_rate=2e-3,
        target_rate=0.05,
        discount=0.9,
        evaluate_every=400,
        evaluation_episodes=5,
    )
    curve = train_td3(data, config, tmp_path / "run", silent=True)
    behaviour = np.add.reduceat(data.arrays["rewards"], data.starts).mean()
    best = 20.0  # in 20 steps, had every one of them been at the origin
    assert curve[-1].return_mean > behaviour + 0.25 * (best - behaviour)


def test_settings_are_checked_together() -> None:
    with pytest.raises(ConfigError) as error:
        TD3Config(
            updates=0,
            hidden=-1,
            discount=1.0,
            target_rate=0,
            learning_rate=0,
            variant="sate-frozen",
        )  # type: ignore[arg-type]
    for part in (
        "6 fault",
        "updates must be",
        "hidden",
        "discount",
        "target_rate",
        "learning_rate",
        "'state-frozen'",
    ):
        assert part in str(error.value)
    assert td3_preset("paper").hidden == 1024
    with pytest.raises(ConfigError, match="unknown preset 'papre'"):
        td3_preset("papre")


def test_runs_and_data_that_do_not_fit(run, data, tmp_path) -> None:
    def attempt(given: Any, variant: str = "raw", encoder: Any = None, out: str = "out") -> None:
        train_td3(given, settings_for(variant), tmp_path / out, encoder_run=encoder, silent=True)

    with pytest.raises(ConfigError, match="'state-frozen' needs encoder_run"):
        attempt(data, "state-frozen")
    with pytest.raises(ConfigError, match="'raw' reads states: leave encoder_run out"):
        attempt(data, encoder=run)
    with pytest.raises(ConfigError, match="name no environment"):
        attempt(data.with_metadata(env_id=None))
    with pytest.raises(
        ConfigError, match="does not fit the model: its observation is numbers of shape"
    ):
        attempt(data.with_metadata(env_id="Hopper-v5"))
    with pytest.raises(DataError, match="learns from rewards: a reward is the one modality"):
        attempt(data.select(["states", "actions"]))
    with pytest.raises(DataError, match="modality of role 'state', the data have none"):
        attempt(data.select(["actions", "rewards"]))
    config = replace(preset("tiny"), steps=2, modalities=("actions",))
    stateless = train(data, config, tmp_path / "stateless", silent=True)
    with pytest.raises(
        ConfigError, match=r"it has none of role 'state', the data have states\[4\]"
    ):
        attempt(data, "state-frozen", stateless)
    narrow = TrajectoryDataset.from_episodes(
        [{"states": np.eye(9, 3), "actions": np.eye(9, 2)}] * 2
    )
    other = train(narrow, replace(preset("tiny"), steps=2), tmp_path / "narrow", silent=True)
    with pytest.raises(
        ConfigError, match=r"states\[3\] of role 'state', the data have states\[4\]"
    ):
        attempt(data, "state-frozen", other)
    (tmp_path / "full").mkdir()
    (tmp_path / "full/notes.txt").write_text("mine")
    with pytest.raises(RunError, match="exists and is not a run"):
        attempt(data, out="full")
    assert not (tmp_path / "out").exists()  # nothing was begun


def test_what_cannot_be_resumed(data, tmp_path) -> None:
    config = settings_for("raw", updates=2)
    train_td3(data, config, tmp_path / "run", silent=True)
    with pytest.raises(RunError, match="already holds a run. Continue it"):
        train_td3(data, config, tmp_path / "run", silent=True)
    with pytest.raises(RunError, match="td3.hidden: 32 -> 16"):
        train_td3(data, replace(config, hidden=16), tmp_path / "run", resume=True, silent=True)
    part = data.subset(range(5))
    with pytest.raises(RunError, match="data fingerprint"):
        train_td3(part, config, tmp_path / "run", resume=True, silent=True)
    (tmp_path / "run/config.json").write_text("{}")
    with pytest.raises(RunError, match="is damaged"):
        train_td3(data, config, tmp_path / "run", resume=True, silent=True)


def test_a_training_is_not_taken_for_a_run(data, tmp_path) -> None:
    train_td3(data, settings_for("raw", updates=2), tmp_path / "td3", silent=True)
    with pytest.raises(RunError, match=r"holds a training of TD3, not a run; .*curve\.csv"):
        load_run(tmp_path / "td3")
    with pytest.raises(RunError, match="holds a training of TD3, not an agent"):
        load_agent(tmp_path / "td3")


def test_only_sound_weights_are_saved(data, tmp_path, monkeypatch) -> None:
    real = TD3Agent.transitions

    def spoil(self, data):
        next(self.policy.parameters()).register_hook(lambda gradient: gradient * np.nan)
        return real(self, data)

    monkeypatch.setattr(TD3Agent, "transitions", spoil)
    with pytest.raises(RunError, match="the norm of its gradient nan, by step 1"):
        train_td3(data, settings_for("raw", evaluate_every=1), tmp_path / "td3", silent=True)
    assert checkpoint.steps(tmp_path / "td3" / "checkpoints") == []


@pytest.fixture
def walker(tmp_path: Path) -> Path:
    """Two episodes of random values of the walker's shapes."""
    folder = tmp_path / "walker"
    folder.mkdir()
    for i in range(2):
        rng = np.random.default_rng(i)
        np.savez(
            folder / f"episode_{i:06}_30.npz",
            observation=rng.normal(size=(31, 24)).astype(np.float32),
            action=rng.uniform(-1, 1, (31, 6)).astype(np.float32),
            reward=np.full((31, 1), 7, np.float32),
            discount=np.ones((31, 1), np.float32),
            physics=rng.normal(size=(31, 18)),
        )
    return folder


def test_rewards_are_those_of_the_task(walker, monkeypatch, tmp_path) -> None:
    """One set without a task serves several; what is stored as reward is not used."""
    pytest.importorskip("dm_control", reason="dm_control is not installed (extra sim)")
    seen: dict[str, torch.Tensor] = {}
    real = TD3Agent.transitions

    def spy(self, data):
        batches = real(self, data)
        seen["rewards"] = batches.rewards[:, 0]
        return batches

    monkeypatch.setattr(TD3Agent, "transitions", spy)
    monkeypatch.setattr(
        "mtm.research.baselines.td3._TD3Trainer.measure",
        lambda *_: {"return_mean": 0.0, "return_std": 0.0},
    )
    files = sorted(walker.glob("*.npz"))
    physics = np.concatenate([np.load(file)["physics"][1:] for file in files])
    for task in ("stand", "run"):
        out = tmp_path / task
        train_td3(f"exorl:{task}:{walker}", settings_for("raw", updates=1), out, silent=True)
        expected = walker_rewards.rewards(task, physics)
        np.testing.assert_allclose(seen["rewards"].numpy(), expected, atol=1e-6)
        assert json.loads((out / "config.json").read_text())["environment"] == f"dmc:walker-{task}"


def test_from_a_folder_without_a_task_to_the_page_of_learning_curves(walker, tmp_path) -> None:
    pytest.importorskip("dm_control", reason="dm_control is not installed (extra sim)")
    order = Order(("representation",), "smoke", (str(walker),), seeds=1, out=tmp_path / "results")
    (page,) = reproduce(order, Console(quiet=True))
    rows = [row for row in page.read_text().splitlines() if row.startswith("| walk, walker |")]
    assert [row.split(" | ")[1] for row in rows] == list(VARIANTS)
    assert all((page.parent / f"representation-{unit}.png").exists() for unit in UNITS)


def test_data_without_physics(walker, tmp_path) -> None:
    file = next(walker.glob("*.npz"))
    with np.load(file) as stored:
        kept = {key: stored[key] for key in stored.files if key != "physics"}
    np.savez(file, **kept)
    with pytest.raises(DataError, match=r"cannot be read.*physics"):
        train_td3(f"exorl:walk:{walker}", settings_for("raw"), tmp_path / "out", silent=True)


CURVE = [Point(10, 1.0, 0.0, 0.0), Point(20, 2.0, 10.0, 1.0), Point(40, 4.0, 30.0, 1.0)]


def test_numbers_of_a_curve() -> None:
    assert area(CURVE) == pytest.approx((10 * 5 + 20 * 20) / 30)
    assert area(CURVE, "seconds", since=1.5, until=3.0) == pytest.approx((0.5 * 7.5 + 15) / 1.5)
    assert area(CURVE, "seconds", since=3.0, until=2.0) == 10.0
    longer = [*CURVE, Point(50, 5.0, 2.0, 1.0), Point(60, 6.0, 28.0, 1.0)]
    assert first_to_reach(longer, 13.0) == longer[2]  # (0 + 10 + 30) / 3
    assert first_to_reach(longer, 20.0) == longer[4]  # not the lucky third
    assert first_to_reach(longer, 20.1) is None
    assert first_to_reach(CURVE[:2], 5.0) == CURVE[1]  # the mean of what there is
    doubled = [Point(p.updates, p.seconds * 3, p.return_mean * 3, 0.0) for p in CURVE]
    assert mean_curve([CURVE, doubled])[2] == Point(40, 8.0, 60.0, 0.5)
    assert final_return([CURVE[2], *CURVE, *CURVE[:2]]) == 10.0  # of the last five
