"""Recording a behaviour agent: files, choices, interruptions, policies of others."""

from __future__ import annotations

import base64
import io
import json
import pickle
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from hypothesis import given, note, settings
from hypothesis import strategies as st
from rich.console import Console

gymnasium = pytest.importorskip("gymnasium", reason="gymnasium is not installed (extra sim)")
sb3 = pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not installed")
pytest.importorskip("matplotlib", reason="matplotlib is not installed (extra report)")

from mtm.cli import collect as cli
from mtm.control.environments import make
from mtm.core.errors import ConfigError, DataError, RunError
from mtm.data import loading
from mtm.research.collect import agents
from mtm.research.collect.actor import Actor, read_policy
from mtm.research.collect.agents import Snapshot
from mtm.research.collect.behaviour import KINDS, CollectSettings, collect
from mtm.research.collect.d4rl_recipes import RecordedRows, choose_expert, choose_medium, write_hdf5
from mtm.research.collect.recorder import Recording, Sizes, recording_wrapper, row_dtype, sizes
from point_mass_environment import FusedPointMass

POINT_MASS = "point_mass_environment:PointMass-v0"
STEPS, RECORD, STOP_AT = 200, 60, 150


pytestmark = pytest.mark.usefixtures("_one_thread")


def quiet() -> Console:
    return Console(file=io.StringIO(), highlight=False, width=200)


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes, int]:
    """A collection that was interrupted, then finished; the rows and the step it went on from."""
    out = tmp_path_factory.mktemp("collected") / "out"
    wanted = CollectSettings("Fused-v0", STEPS, seed=3, record=RECORD)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(agents, "CHECKPOINT_STEPS", 40)
        patch.setattr(agents, "LEAST_SNAPSHOT_STEPS", 60)
        patch.setattr(agents, "JUDGED_EPISODES", 1)
        FusedPointMass.fuse = STOP_AT
        with pytest.raises(KeyboardInterrupt):
            collect(wanted, out, quiet())
        assert not json.loads((out / "collection.json").read_text())["finished"]
        step = json.loads((out / "under-way/state.json").read_text())["step"]
        size = step * row_dtype(Sizes(4, 2)).itemsize
        rows = (out / "under-way/training.rows").read_bytes()[:size]
        collect(wanted, out, quiet())
    return out, rows, step


def test_the_four_kinds_load_and_fit_together(collected: tuple[Path, bytes, int]) -> None:
    out, _, _ = collected
    data = {kind: loading.load(str(out / f"{kind}.hdf5")) for kind in KINDS}
    results = json.loads((out / "collection.json").read_text())["results"]
    for kind, dataset in data.items():
        assert dataset.names == ("states", "actions", "rewards")
        assert set(dataset.lengths.tolist()) == {20}  # whole episodes, no rest
        assert (dataset.metadata.env_id, dataset.metadata.horizon) == ("Fused-v0", 20)
        assert results["kinds"][kind]["steps"] == dataset.num_steps
        returns = dataset.arrays["rewards"].reshape(-1, 20).sum(axis=1)
        assert results["kinds"][kind]["mean_return"] == pytest.approx(returns.mean(), rel=1e-5)
        assert results["kinds"][kind]["best_return"] == pytest.approx(returns.max(), rel=1e-5)
    assert data["expert"].num_steps == data["medium"].num_steps == RECORD
    assert data["medium-replay"].num_steps == results["medium"]["step"]
    for name in ("states", "actions", "rewards"):
        both = [data["medium"].arrays[name], data["expert"].arrays[name]]
        np.testing.assert_array_equal(data["medium-expert"].arrays[name], np.concatenate(both))
    assert (out / "learning-curve.png").read_bytes().startswith(b"\x89PNG")


def test_the_layout_is_d4rl_s(collected: tuple[Path, bytes, int]) -> None:
    with h5py.File(collected[0] / "expert.hdf5") as file:
        assert {key: (item.dtype.str, item.shape) for key, item in file.items()} == {
            "observations": ("<f4", (RECORD, 4)),
            "actions": ("<f4", (RECORD, 2)),
            "rewards": ("<f4", (RECORD,)),
            "terminals": ("|b1", (RECORD,)),
            "timeouts": ("|b1", (RECORD,)),
        }
        assert set(file.attrs) == {"env_id", "behaviour", "seed", "max_episode_steps"}
        assert np.flatnonzero(file["timeouts"][()]).tolist() == [19, 39, 59]
        assert not file["terminals"][()].any()


def test_an_interrupted_collection_keeps_every_checkpointed_episode(
    collected: tuple[Path, bytes, int],
) -> None:
    out, rows, step = collected
    assert 60 < step < STOP_AT  # a checkpoint of the first sitting
    results = json.loads((out / "collection.json").read_text())["results"]
    assert [s["step"] for s in results["snapshots"]][-1] == STEPS
    assert results["snapshots"][0]["step"] < step  # kept from the first sitting
    replay = loading.load(str(out / "medium-replay.hdf5"))
    before = np.frombuffer(rows, row_dtype(Sizes(4, 2)))["observations"]
    both = min(len(before), replay.num_steps)
    np.testing.assert_array_equal(replay.arrays["states"][:both], before[:both])
    assert not (out / "under-way").exists()


def test_a_finished_collection_is_left_alone(collected: tuple[Path, bytes, int]) -> None:
    out, _, _ = collected
    console = quiet()
    before = (out / "expert.hdf5").stat().st_mtime_ns
    collect(CollectSettings("Fused-v0", STEPS, seed=3, record=RECORD), out, console)
    assert "is finished" in console.file.getvalue()  # type: ignore[attr-defined]
    assert (out / "expert.hdf5").stat().st_mtime_ns == before
    with pytest.raises(ConfigError, match="seed was 3, now 4"):
        collect(CollectSettings("Fused-v0", STEPS, seed=4, record=RECORD), out, console)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"env_id": "CartPole-v1"}, "actions are Discrete"),
        ({"env_id": "Endless-v0"}, "no time limit"),
        ({"env_id": "Hoper-v5"}, "Did you mean"),
        ({"steps": 0}, "--steps must be at least 1, got 0"),
        ({"seed": -1}, "--seed must not be negative"),
    ],
)
def test_bad_settings(changes: dict, message: str, tmp_path: Path) -> None:
    wanted = {"env_id": POINT_MASS, "steps": 10, "seed": 0, "record": 10} | changes
    with pytest.raises(ConfigError, match=message):
        collect(CollectSettings(**wanted), tmp_path / "out", quiet())
    assert not (tmp_path / "out").exists()


def test_files_of_others_are_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "expert.hdf5").write_text("precious")
    with pytest.raises(ConfigError, match=r"holds expert.hdf5, which this would replace"):
        collect(CollectSettings(POINT_MASS, 10, 0, 10), tmp_path, quiet())
    (tmp_path / "collection.json").write_text("[]")
    with pytest.raises(RunError, match="not what a collection writes"):
        collect(CollectSettings(POINT_MASS, 10, 0, 10), tmp_path, quiet())
    assert (tmp_path / "expert.hdf5").read_text() == "precious"


def curve(*returns: float) -> list[Snapshot]:
    return [Snapshot(100 * (i + 1), value) for i, value in enumerate(returns)]


def test_medium_is_a_third_of_the_way_from_random_to_expert() -> None:
    snapshots = curve(20, 300, 900, 1150, 2000, 2900, 3100)
    expert = choose_expert(snapshots)
    assert expert.mean_return == 3100
    assert choose_medium(snapshots, 100, expert).step == 400  # wanted: 100 + 3000 / 3
    assert choose_medium(snapshots, -2000, expert).step == 100  # wanted: -300


def test_the_expert_is_late_and_medium_is_not_after_it() -> None:
    snapshots = curve(500, 9000, 800, 3000, 2900, 3000, 3000, 3100, 1000, 2500)
    expert = choose_expert(snapshots)
    assert expert.step == 800  # 9000 was not kept up, and the last ones are a dip
    assert choose_medium(snapshots, 0, expert).step == 300
    only = curve(5)
    assert choose_medium(only, 0, choose_expert(only)) == only[0]


def record(recording: Recording, length: int, *, terminated: bool, first: float = 0.0) -> None:
    for i in range(length):
        end = i == length - 1
        value = first + i
        recording.add(
            np.full(3, value),
            np.full(2, -value),
            np.full(3, value + 1),
            value,
            end and terminated,
            end and not terminated,
        )


def test_a_recording_holds_whole_episodes_and_cuts_off_the_rest(tmp_path: Path) -> None:
    file = tmp_path / "rows"
    recording = Recording(file, Sizes(3, 2))
    record(recording, 5, terminated=True)
    record(recording, 3, terminated=False, first=10)
    kept = recording.rows
    record(recording, 4, terminated=True)
    recording.add(np.zeros(3), np.zeros(2), np.zeros(3), 1.0, False, False)  # under way
    assert (kept, recording.rows) == (8, 12)
    with file.open("ab") as raw:
        raw.write(b"half a row")
    again = Recording(file, Sizes(3, 2), rows=kept)
    rows = again.read(0, again.rows)
    assert again.returns().tolist() == [10.0, 33.0]
    assert rows["terminals"].tolist() == [False] * 4 + [True] + [False] * 3
    assert rows["timeouts"].tolist() == [False] * 7 + [True]
    np.testing.assert_array_equal(rows["next_observations"][:4], rows["observations"][1:5])
    with pytest.raises(RunError, match=r"holds 8 transitions, but 9 were recorded"):
        Recording(file, Sizes(3, 2), rows=9)


def test_returns_do_not_depend_on_the_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = Recording(tmp_path / "rows", Sizes(3, 2))
    for length in (7, 1, 12, 3, 4):
        record(recording, length, terminated=length % 2 == 0, first=length)
    wanted = [sum(n + i for i in range(n)) for n in (7, 1, 12, 3, 4)]
    for chunk in (1, 2, 3, 4, 5, 100):
        monkeypatch.setattr("mtm.research.collect.recorder.CHUNK_ROWS", chunk)
        assert recording.returns().tolist() == wanted
        write_hdf5(
            tmp_path / f"{chunk}.hdf5",
            [RecordedRows(recording, 8), RecordedRows(recording, 27)],
            {},
        )
        with h5py.File(tmp_path / f"{chunk}.hdf5") as file:
            first = file["observations"][:, 0]
        np.testing.assert_array_equal(first[:8], recording.read(0, 8)["observations"][:, 0])
        np.testing.assert_array_equal(first[8:], recording.read(0, 27)["observations"][:, 0])


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[object, Path]:
    """An agent of Stable-Baselines3 and the file that it wrote."""
    agent = sb3.SAC("MlpPolicy", make(POINT_MASS), seed=0, policy_kwargs={"net_arch": [16, 12]})
    file = tmp_path_factory.mktemp("policy") / "agent.zip"
    agent.save(file)
    return agent, file


def test_the_actor_acts_as_stable_baselines_does(saved) -> None:
    agent, file = saved
    env = make(POINT_MASS)
    actor = Actor(read_policy(file), env)
    rng = np.random.default_rng(0)
    for observation in rng.normal(size=(5, 4)).astype(np.float32):
        likely, _ = agent.predict(observation, deterministic=True)
        np.testing.assert_allclose(actor.act(observation), likely, atol=1e-5)
    many = np.stack([actor.act(observation, rng) for _ in range(4000)])
    theirs, _ = agent.predict(np.repeat(observation[None], 4000, axis=0), deterministic=False)
    np.testing.assert_allclose(many.mean(axis=0), theirs.mean(axis=0), atol=0.06)
    np.testing.assert_allclose(many.std(axis=0), theirs.std(axis=0), atol=0.04)


def test_a_given_policy_is_recorded(saved, tmp_path: Path, capsys) -> None:
    words = ["--env", POINT_MASS, "--policy", str(saved[1]), "--record", "50", "--out"]
    cli.main([*words, str(tmp_path / "out")])
    printed = capsys.readouterr().out
    assert "only expert.hdf5 is written" in printed
    assert loading.load(str(tmp_path / "out" / "expert.hdf5")).num_steps == 60
    assert not (tmp_path / "out" / "medium.hdf5").exists()
    with pytest.raises(ConfigError, match="--explore trains its own agent"):
        cli.main([*words, str(tmp_path / "other"), "--explore"])


class Trap:
    """Unpickling one of these would be seen."""

    def __reduce__(self):
        return (pytest.fail, ("a pickle was executed",))


def rewrite(file: Path, to: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(to, "w") as new:
        for name in old.namelist():
            new.writestr(name, members.get(name.replace(".", "_"), old.read(name)))
    return to


def test_nothing_in_a_policy_is_executed(saved, tmp_path: Path) -> None:
    _, file = saved
    trap = base64.b64encode(pickle.dumps(Trap())).decode()
    content = json.loads(zipfile.ZipFile(file).read("data"))
    content = {
        key: {":type:": "x", ":serialized:": trap} if ":serialized:" in str(value) else value
        for key, value in content.items()
    }
    trapped = rewrite(file, tmp_path / "data.zip", data=json.dumps(content).encode())
    assert "mu.weight" in read_policy(trapped)  # the pickles were not looked at
    bad = rewrite(file, tmp_path / "weights.zip", policy_pth=pickle.dumps(Trap()))
    with pytest.raises(DataError, match="cannot be read as a policy"):
        read_policy(bad)


def test_policies_that_cannot_be_used(saved, tmp_path: Path) -> None:
    _, file = saved
    with pytest.raises(DataError, match="cannot be read as a policy"):
        read_policy(tmp_path / "nowhere.zip")
    content = json.loads(zipfile.ZipFile(file).read("data"))
    for change in ({"use_sde": True}, {"policy_kwargs": {"activation_fn": "<class 'Tanh'>"}}):
        other = rewrite(file, tmp_path / "x.zip", data=json.dumps(content | change).encode())
        with pytest.raises(DataError, match="only SAC's MlpPolicy with ReLU"):
            read_policy(other)
    weights = io.BytesIO()
    torch.save({"actor.mu.weight": torch.zeros(2, 3)}, weights)
    other = rewrite(file, tmp_path / "x.zip", policy_pth=weights.getvalue())
    with pytest.raises(DataError, match="the policy has no 'mu.bias'"):
        Actor(read_policy(other), make(POINT_MASS))
    with pytest.raises(DataError, match="takes 4 numbers and gives 2; .* of 3 and 1"):
        Actor(read_policy(file), make("Pendulum-v1"))


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_damaged_policy_is_refused_or_read(saved, tmp_path_factory, data) -> None:
    content = bytearray(saved[1].read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    file = tmp_path_factory.mktemp("damaged") / "agent.zip"
    file.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    try:
        Actor(read_policy(file), make(POINT_MASS))
    except DataError as error:
        note(str(error))


def test_an_agent_and_its_replay_buffer_come_back(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "rows", Sizes(4, 2))
    env = recording_wrapper()(make(POINT_MASS), recording)
    options = {"learning_starts": 55, "buffer_size": 100, "batch_size": 8}
    first = sb3.SAC("MlpPolicy", env, seed=0, **options)
    first.learn(60)
    agents._save_agent(tmp_path / "agent.pt", first)
    second = sb3.SAC("MlpPolicy", make(POINT_MASS), seed=1, **options)
    agents._load_agent(tmp_path / "agent.pt", second)
    agents._refill(second, recording)
    assert torch.equal(first.log_ent_coef, second.log_ent_coef)
    ours, theirs = second.get_parameters(), first.get_parameters()
    for name, value in theirs["policy"].items():
        assert torch.equal(ours["policy"][name], value), name
    moments = theirs["critic.optimizer"]["state"][0]["exp_avg"]
    assert torch.equal(ours["critic.optimizer"]["state"][0]["exp_avg"], moments)
    for name in ("observations", "next_observations", "actions", "rewards", "dones", "timeouts"):
        np.testing.assert_allclose(
            getattr(second.replay_buffer, name), getattr(first.replay_buffer, name), atol=1e-6
        )
    (tmp_path / "agent.pt").write_bytes(b"nothing")
    with pytest.raises(RunError, match="agent.pt cannot be read"):
        agents._load_agent(tmp_path / "agent.pt", second)


def test_sizes() -> None:
    assert sizes(make(POINT_MASS)) == Sizes(4, 2)


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="exists and is not a collection"):
        collect(CollectSettings(POINT_MASS, 10, 0, 10), tmp_path, quiet())
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]
    with pytest.raises(ConfigError, match="--explore-reward is for --explore"):
        cli.main(["--env", POINT_MASS, "--out", str(tmp_path / "x"), "--explore-reward", "knn"])
