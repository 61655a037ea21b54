"""What is exported answers as the run does, whatever the mask, and acts as its policies do."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mtm
from mtm.cli import main
from mtm.control import environments, policies
from mtm.control.masked_policy import MaskedPolicy
from mtm.core.config import TrainConfig
from mtm.core.errors import ConfigError, DataError, RunError
from mtm.core.export_config import ExportConfig
from mtm.core.names import EXPORTABLE
from mtm.core.plain_data import SEAL
from mtm.data.trajectories import Metadata, TrajectoryDataset
from mtm.deploy.policy_file import PolicyFile, read_policy_file
from mtm.inference import queries
from mtm.inference.engine import ask
from mtm.runs.run import Run
from mtm.training.train import train

pytest.importorskip("onnxscript", reason="the extra `export` is not installed")

CLOSE = {"rtol": 0, "atol": 1e-5}


def act_side_by_side(policy: MaskedPolicy, exported: Any, env_id: str, episodes: int) -> None:
    """Both see the same whole episodes, in which the run's own policy acts."""
    env = environments.make(env_id)
    policy.reset(1)
    exported.reset(1)
    state, _ = env.reset(seed=0)
    done = 0
    while done < episodes:
        expected = policy.act(state[None])
        np.testing.assert_allclose(exported.act(state[None]), expected, **CLOSE)
        low, high = env.action_space.low, env.action_space.high
        state, reward, terminated, truncated, _ = env.step(np.clip(expected[0], low, high))
        ended = terminated or truncated
        for acting in (policy, exported):
            acting.observe(np.array([reward]), np.array([ended]))
        if ended:
            done += 1
            state, _ = env.reset(seed=done)
    env.close()


def test_the_same_actions_over_whole_episodes_of_hopper(hopper: Run, exported: Path) -> None:
    pytest.importorskip("mujoco", reason="the extra `sim` is not installed")
    policy, copy = policies.return_conditioned(hopper), mtm.deploy.load(exported)
    assert copy.capability == "rcbc"
    assert copy.target == policy.ways[0].target
    act_side_by_side(policy, copy, "Hopper-v5", episodes=3)
    cloning = mtm.deploy.load(exported, "bc")
    act_side_by_side(policies.behavior_cloning(hopper), cloning, "Hopper-v5", episodes=1)


def test_the_same_actions_over_a_whole_episode_of_door(quick: TrainConfig, tmp_path: Path) -> None:
    """With a past, with guidance, and a target that is counted down."""
    pytest.importorskip("gymnasium_robotics", reason="the extra `sim` is not installed")
    env = environments.make("AdroitHandDoor-v1")
    rng = np.random.default_rng(0)
    state, _ = env.reset(seed=0)
    logged: dict[str, list[Any]] = {"states": [], "actions": [], "rewards": []}
    for _ in range(80):
        action = rng.uniform(-1, 1, env.action_space.shape).astype(np.float32)
        logged["states"].append(state.astype(np.float32))
        logged["actions"].append(action)
        state, _, _, _, _ = env.step(action)
        logged["rewards"].append(rng.integers(2))
    arrays = {name: np.asarray(values, np.float32) for name, values in logged.items()}
    about = Metadata(env_id="AdroitHandDoor-v1", horizon=200)
    data = TrajectoryDataset.from_arrays(arrays, np.arange(0, 81, 20), metadata=about)
    config = replace(quick, returns=replace(quick.returns, kind="sum"))
    run = train(data, config, tmp_path / "run", silent=True)
    asked = ExportConfig(guidance=1.5, history=1)
    written = mtm.deploy.export(run, tmp_path / "door", asked)
    assert "made up" in written.check.of  # arrays in memory cannot be found again
    policy = policies.return_conditioned(run, guidance=1.5, history=1)
    copy = mtm.deploy.load(tmp_path / "door")
    act_side_by_side(policy, copy, "AdroitHandDoor-v1", episodes=1)


@pytest.fixture(scope="module")
def levers(maze: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("levers") / "maze"
    mtm.deploy.export(maze, folder, ExportConfig(("bc",), history=1))
    return folder


def test_the_same_choices_among_classes_with_names_of_their_own(maze: Run, levers: Path) -> None:
    """Rows end at different steps, so they remember different numbers of steps; some drop out."""
    policy, copy = policies.behavior_cloning(maze, history=1), mtm.deploy.load(levers)
    rng = np.random.default_rng(1)
    n = 40
    chosen = set()
    for acting in (policy, copy):
        acting.reset(n)
    for step in range(12):
        cells, rewards = rng.integers(7, size=n), rng.normal(size=n)
        expected = policy.act(cells)
        np.testing.assert_array_equal(copy.act(cells), expected)
        chosen |= set(expected.tolist())
        dones = rng.random(n) < 0.2
        for acting in (policy, copy):
            acting.observe(rewards, dones)
        if step == 6:
            n = 15
            for acting in (policy, copy):
                acting.keep(np.arange(0, 30, 2))
    assert len(chosen) > 1
    with pytest.raises(DataError, match="its classes are the whole numbers from 0 to 6"):
        copy.act(np.full(n, 7))


def test_predictions_are_those_of_the_run(hopper: Run, exported: Path) -> None:
    rng = np.random.default_rng(0)
    known = hopper.normalizer.statistics
    T = hopper.segment_length
    states, actions = (
        (known[n].mean + known[n].std * rng.normal(size=(5, T, *known[n].mean.shape))).astype("f4")
        for n in ("states", "actions")
    )
    ask_id = mtm.deploy.load_model(exported, "id")
    expected = queries.inverse_dynamics(hopper, states)[:, :-1]
    np.testing.assert_allclose(ask_id({"states": states})["actions"], expected, **CLOSE)
    alone = ask_id({"states": states[0]})["actions"]
    np.testing.assert_allclose(alone, expected[0], **CLOSE)

    ask_fd = mtm.deploy.load_model(exported, "fd")
    given = {"states": states[:, :-1], "actions": actions[:, :-1]}
    expected = queries.forward_dynamics(hopper, *given.values())
    np.testing.assert_allclose(ask_fd(given)["states"], expected, rtol=1e-5, atol=1e-4)

    features = mtm.deploy.load_model(exported, "represent")({"states": states})["features"]
    assert features.shape == (5, T, hopper.transformer.config.width)
    np.testing.assert_allclose(features, queries.represent(hopper, states), **CLOSE)


def test_the_general_graph_takes_any_mask(hopper: Run, exported: Path) -> None:
    """Also shorter windows; what is given stays as it is, and what is hidden has no influence."""
    impute = mtm.deploy.load_model(exported, "impute")
    rng, S = np.random.default_rng(0), hopper.segment_length - 1
    states = rng.normal(size=(6, S, 11)).astype(np.float32)
    actions = rng.normal(size=(6, S, 3)).astype(np.float32)
    gaps = rng.random((6, S)) < 0.5
    gaps[0] = False
    holes = np.where(gaps[:, :, None], np.nan, states)
    filled = impute({"states": holes, "actions": actions})
    np.testing.assert_array_equal(filled["states"][~gaps], states[~gaps])
    np.testing.assert_array_equal(filled["actions"], actions)
    visible = np.stack([~gaps, np.zeros((6, S), bool), np.ones((6, S), bool)], axis=2)
    window = {"states": np.nan_to_num(holes), "actions": actions}
    expected = ask(hopper, window, visible, ["states", "returns"])
    np.testing.assert_allclose(filled["states"][gaps], expected["states"][gaps], **CLOSE)
    np.testing.assert_allclose(filled["returns"], expected["returns"], **CLOSE)
    marked = impute({"states": states, "actions": actions}, present={"states": ~gaps})
    np.testing.assert_array_equal(marked["states"], filled["states"])


def test_what_models_do_not_take(exported: Path) -> None:
    model = mtm.deploy.load_model(exported, "fd")
    good = {"states": np.zeros((3, 11)), "actions": np.zeros((3, 3))}
    assert model(good)["states"].shape == (1, 11)
    faults: list[tuple[dict[str, Any], str]] = [
        ({"states": good["states"]}, "fd also needs actions"),
        ({**good, "state": 0}, "unknown input of fd: 'state'"),
        ({**good, "actions": np.zeros((2, 3))}, "takes 3 steps of 'actions', got 2"),
        ({**good, "actions": np.zeros((3, 4))}, "trained on values of shape"),
        ({**good, "actions": np.full((3, 3), np.nan)}, "has a gap"),
        ({**good, "actions": np.zeros((2, 3, 3))}, "same batch"),
    ]
    for given, message in faults:
        with pytest.raises(DataError, match=message):
            model(given)
    impute = mtm.deploy.load_model(exported, "impute")
    with pytest.raises(DataError, match="5 steps were given; the model sees 4"):
        impute({"states": np.zeros((5, 11))})
    with pytest.raises(DataError, match="fd takes none"):
        model(good, present={})


def test_the_contract_of_a_policy(exported: Path) -> None:
    policy = mtm.deploy.load(exported)
    assert policy.act(np.zeros((1, 11))).shape == (1, 3)  # begins with one environment
    policy.reset(3)
    with pytest.raises(DataError, match=r"3 states of shape \(11,\) are expected, got \(2, 11\)"):
        policy.act(np.zeros((2, 11)))
    with pytest.raises(DataError, match="3 rewards and 3 dones are expected"):
        policy.observe(np.zeros(2), np.zeros(3, bool))
    with pytest.raises(ConfigError, match="at least one environment, got 0"):
        policy.reset(0)
    first = policy.act(np.zeros((3, 11)))
    policy.act(np.ones((3, 11)))
    np.testing.assert_array_equal(first, policy.act(np.zeros((3, 11))))  # no view of a memory
    assert isinstance(policy, policies.ModelPolicy)  # `mtm.rollout` takes it


def test_what_is_not_there_cannot_be_loaded(exported: Path, levers: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no capability 'fd'; it was exported with bc"):
        mtm.deploy.load_model(levers, "fd")
    with pytest.raises(ConfigError, match="'fd' is no policy"):
        mtm.deploy.load(exported, "fd")
    with pytest.raises(ConfigError, match="threads must be at least 1"):
        mtm.deploy.load(exported, threads=0)
    with pytest.raises(RunError, match="there is no policy.json"):
        mtm.deploy.load(tmp_path)


@pytest.fixture
def changed(exported: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(exported, tmp_path / "copy"))


def test_a_changed_graph_is_refused(changed: Path) -> None:
    graph = changed / "rcbc.onnx"
    data = bytearray(graph.read_bytes())
    data[len(data) // 2] ^= 1
    graph.write_bytes(data)
    with pytest.raises(RunError, match="is not what was exported: its SHA-256 is"):
        mtm.deploy.load(changed)
    graph.unlink()
    with pytest.raises(RunError, match="cannot be read"):
        mtm.deploy.load(changed)
    assert mtm.deploy.load(changed, "bc") is not None


def edit(folder: Path, *place: Any, value: Any) -> None:
    """Change one entry of policy.json."""
    file = folder / "policy.json"
    plain = part = json.loads(file.read_text())
    for key in place[:-1]:
        part = part[key]
    part[place[-1]] = value
    plain.pop(SEAL, None)  # as whoever edits it on purpose does
    file.write_text(json.dumps(plain))


GRAPH = ("capabilities", "rcbc", "graphs", 0)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("format",), 2, "format 2, this version of mtm reads up to 1"),
        (("format",), "1", "is damaged"),
        (("modalities",), [], "is damaged"),
        (("modalities", 0, "kind"), "sound", "is damaged"),
        (("capabilities",), {}, "is damaged"),
        (("capabilities", "rcbc", "graphs"), [], "has 0 graphs"),
        (("capabilities", "rcbc", "acting", "history"), 1, "has 1 graphs"),
        (("capabilities", "rcbc", "acting", "returns"), None, "without a rule"),
        ((*GRAPH, "file"), "../hopper/rcbc.onnx", "not the name of a graph in this folder"),
        ((*GRAPH, "file"), "/etc/passwd.onnx", "not the name of a graph in this folder"),
        ((*GRAPH, "file"), "..\\rcbc.onnx", "not the name of a graph in this folder"),
        ((*GRAPH, "file"), 7, "is damaged"),
        ((*GRAPH, "inputs", 0, "shape"), [1, 12], "is damaged"),
        ((*GRAPH, "inputs", 0, "steps"), [9], "is damaged"),
        ((*GRAPH, "inputs", 0, "name"), "actions", "is damaged"),
        ((*GRAPH, "file"), "bc.onnx", "is not what was exported"),
    ],
)
def test_a_changed_description_is_refused(
    changed: Path, place: tuple[Any, ...], value: Any, message: str
) -> None:
    edit(changed, *place, value=value)
    with pytest.raises(RunError, match=message):
        mtm.deploy.load(changed)


def test_a_graph_that_is_not_as_described_is_refused(changed: Path) -> None:
    """Even where its digest is: another graph, and no graph at all."""
    described = json.loads((changed / "policy.json").read_text())["capabilities"]["bc"]["graphs"][0]
    edit(changed, *GRAPH, "file", value="bc.onnx")
    edit(changed, *GRAPH, "sha256", value=described["sha256"])
    with pytest.raises(RunError, match="policy.json says"):
        mtm.deploy.load(changed)
    (changed / "policy.json").write_text("{")
    with pytest.raises(RunError, match="cannot be read"):
        mtm.deploy.load(changed)


def test_an_export_says_how_far_off_it_is(exported: Path) -> None:
    written: PolicyFile = read_policy_file(exported)
    graphs = [graph for graphs in written.graphs.values() for graph in graphs]
    assert list(written.graphs) == list(EXPORTABLE)
    assert 0 < written.check.largest_difference <= written.check.tolerance == 1e-5
    assert written.check.largest_difference >= max(g.largest_difference for g in graphs)
    assert written.check.of == "held-out segments of builtin:hopper"
    for graph in graphs:
        data = (exported / graph.file).read_bytes()
        assert str(Path(mtm.__file__).parent).encode() not in data  # nothing of this machine


def test_an_export_beyond_the_tolerance_leaves_nothing(hopper: Run, tmp_path: Path) -> None:
    out = tmp_path / "strict"
    with pytest.raises(RunError, match="differs from the run by .* Nothing was written"):
        mtm.deploy.export(hopper, out, ExportConfig(("bc",), tolerance=0.0))
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_exported(
    hopper: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    for config, message in (
        ({"capabilities": ("two_stage",)}, "unknown capability to export: 'two_stage'"),
        ({"capabilities": ()}, "once"),
        ({"capabilities": ("bc", "bc")}, "once"),
        ({"capabilities": ("bc",), "target": "score:1"}, "target and guidance are for rcbc"),
        ({"capabilities": ("id",), "history": 1}, "history is for rcbc, bc and fd"),
        ({"tolerance": -1.0}, "tolerance must be"),
    ):
        with pytest.raises(ConfigError, match=message):
            ExportConfig(**config)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="history 4"):
        mtm.deploy.export(hopper, out, ExportConfig(history=4))
    with pytest.raises(ConfigError, match="now=3 makes no sense"):
        mtm.deploy.export(hopper, out, ExportConfig(("fd",), history=3))
    with pytest.raises(DataError, match="exists already"):
        mtm.deploy.export(hopper, tmp_path)
    words = ["export", str(hopper.path), "--out", str(out), "--target", "much"]
    assert main(words) == 2
    assert "cannot understand the target 'much'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_perceptron_has_no_encoder_and_takes_no_other_mask(
    point_mass: TrajectoryDataset, quick: TrainConfig, tmp_path: Path
) -> None:
    model = replace(quick.model, network="mlp", decoder_layers=1)
    run = train(point_mass, replace(quick, model=model), tmp_path / "run", silent=True)
    for name in ("impute", "represent"):
        with pytest.raises(ConfigError, match="is an MLP"):
            mtm.deploy.export(run, tmp_path / "out", ExportConfig((name,)))
    words = ["export", str(run.path), "--capability", "bc", "--out", str(tmp_path / "out")]
    assert main(words) == 0
    policy = mtm.deploy.load(tmp_path / "out")
    states = np.random.default_rng(0).normal(size=(1, 4)).astype(np.float32)
    expected = policies.behavior_cloning(run).act(states)
    np.testing.assert_allclose(policy.act(states), expected, **CLOSE)
