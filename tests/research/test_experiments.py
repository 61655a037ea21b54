"""The harness: what a run is, when it is done, what fails, and what is written about it."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

from mtm.cli import main
from mtm.core.config import preset
from mtm.core.locks import locked
from mtm.research.baselines.settings import AGENTS
from mtm.research.baselines.td3_config import td3_preset
from mtm.research.baselines.td3_curve import Point
from mtm.research.experiments import (
    EXPERIMENTS,
    capabilities,
    data_efficiency,
    heteromodal,
    length,
    masking,
    methods,
    paper,
    recipes,
    representation,
    reproduce,
    runner,
    table1,
)
from mtm.research.experiments.data import DataFacts, facts
from mtm.research.experiments.engines import Finished, LocalEngine
from mtm.research.experiments.execute import execute, read
from mtm.research.experiments.over_seeds import Number
from mtm.research.experiments.reproduce import Order
from mtm.research.experiments.runner import Result, plan, results, run_all
from mtm.research.experiments.scales import LONG, SCALES
from mtm.research.experiments.spec import RunSpec
from mtm.research.experiments.view import time_left
from mtm.runs import checkpoint

DATA = "builtin:point-mass"
SMOKE = SCALES["smoke"]


@pytest.fixture(autouse=True)
def _threads_as_before() -> Iterator[None]:
    """A run sets the threads of its process, which here is that of all tests."""
    variables, threads = dict(os.environ), torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
    for name in set(os.environ) - set(variables):
        del os.environ[name]
    os.environ.update(variables)


class InThisProcess:
    """An engine that computes a run when it is submitted."""

    def __init__(self) -> None:
        self.order: list[Path] = []
        self._finished: list[Finished] = []

    def has_room(self) -> bool:
        return not self._finished

    def submit(self, folder: Path, threads: int) -> None:
        self.order.append(folder)
        self._finished.append(Finished(folder, execute(folder)))

    def wait(self, seconds: float) -> list[Finished]:
        finished, self._finished = self._finished, []
        return finished

    def close(self) -> None:
        pass


@pytest.fixture
def _toy(monkeypatch) -> None:
    monkeypatch.setitem(methods.METHODS, "toy", "toy_methods:run")


def toy(
    seed: int = 0, label: str = "a toy", needs: tuple[RunSpec, ...] = (), **settings
) -> RunSpec:
    return RunSpec("toy", DATA, seed, settings, label, needs)


def compute(specs: list[RunSpec], out: Path) -> tuple[list[Result], InThisProcess]:
    engine = InThisProcess()
    states = plan(specs, out)
    run_all(states, engine, lambda states: None)
    return results(specs, states), engine


def test_the_key_is_what_the_run_is() -> None:
    spec = toy(width=(1, 2))
    assert spec.key("f") == replace(spec, label="another").key("f")
    assert spec.key("f") == RunSpec.from_json(json.loads(json.dumps(spec.to_json()))).key("f")
    others = [
        spec.key("g"),
        replace(spec, seed=1).key("f"),
        replace(spec, data="builtin:hopper").key("f"),
        replace(spec, method="mtm").key("f"),
        replace(spec, settings={"width": [1, 3]}).key("f"),
        replace(spec, needs=(toy(),)).key("f"),
        replace(spec, needs=(toy(seed=1),)).key("f"),
    ]
    assert len({spec.key("f"), *others}) == len(others) + 1


@pytest.mark.usefixtures("_toy")
def test_a_failure_stops_nothing_and_is_tried_again(tmp_path: Path) -> None:
    cure = tmp_path / "cure"
    bad = toy(label="bad", unless=str(cure))
    after = toy(label="after", needs=(bad,))
    specs = [bad, after, toy(1), replace(toy(2), data="nowhere.hdf5"), replace(toy(3), method="x")]
    found, _ = compute(specs, tmp_path / "out")
    reasons = [r.reason for r in found]
    assert reasons[0] == "ValueError: a cable came loose"
    assert reasons[1] == "needs a run that failed: bad"
    assert found[2].value == {"seed": 1, "needs": []}
    assert "no data set at 'nowhere.hdf5'" in reasons[3]
    assert "unknown method 'x'" in reasons[4]
    (folder,) = (tmp_path / "out" / "runs").glob(f"{bad.key(facts(DATA).fingerprint)}-*")
    assert "Traceback" in (folder / "log.txt").read_text()
    cure.touch()
    found, engine = compute(specs[:3], tmp_path / "out")
    assert [r.reason for r in found] == [None, None, None]
    assert found[1].value == {"seed": 0, "needs": [".."]}  # bad was called twice, then needed
    assert len(engine.order) == 2  # the third was not repeated


@pytest.mark.usefixtures("_toy")
def test_what_is_needed_comes_first_and_equal_runs_are_one(tmp_path: Path) -> None:
    first = toy(label="first")
    later = toy(5, needs=(first,))
    found, engine = compute([later, replace(first, label="same"), later], tmp_path)
    assert [read(folder / "spec.json")["spec"]["seed"] for folder in engine.order] == [0, 5]
    assert found[0].value == found[2].value == {"seed": 5, "needs": ["."]}


HOLD = "import sys, time; from pathlib import Path; from mtm.core.locks import locked\n"
HOLD += "with locked(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"


@pytest.mark.usefixtures("_toy")
def test_a_lock_dies_with_its_holder(tmp_path: Path) -> None:
    (state,) = plan([toy()], tmp_path)
    assert state.folder is not None
    words = [sys.executable, "-c", HOLD, str(state.folder / "lock")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        assert execute(state.folder) == "busy"
        assert not (state.folder / "work").exists()
        holder.kill()
        with locked(state.folder / "lock") as mine:  # waits for the death
            assert mine
    assert execute(state.folder) == "done"
    assert execute(state.folder) == "done"
    assert (state.folder / "work" / "calls").read_text() == "."


@pytest.mark.usefixtures("_toy")
def test_a_run_of_another_process_is_waited_for(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(runner, "SECONDS_UNTIL_NEXT_TRY", 0.05)
    monkeypatch.setattr(runner, "SECONDS_BETWEEN_LOOKS", 0.05)
    states = plan([toy(), toy(1)], tmp_path)
    seen = []
    with ExitStack() as another:
        assert another.enter_context(locked(states[0].folder / "lock"))

        def look(states) -> None:
            seen.append([state.status for state in states])
            if seen[-1] == ["elsewhere", "done"]:
                another.close()

        run_all(states, InThisProcess(), look)
    assert ["elsewhere", "done"] in seen  # the other run went on meanwhile
    assert seen[-1] == ["done", "done"]


def test_a_worker_whose_parent_is_gone_saves(tmp_path: Path) -> None:
    config = replace(preset("tiny"), steps=100_000, validate_every=50_000, checkpoint_every=50_000)
    spec = RunSpec("mtm", DATA, 0, {"train": config.to_json(), "threads": 1}, "long")
    (state,) = plan([spec], tmp_path)
    engine = LocalEngine(1)
    engine.submit(state.folder, 1)
    while "of training left" not in time_left(spec, state.folder):
        assert engine.wait(0.05) == []
    engine.close()  # as the end of the parent: the worker's input ends
    saved = checkpoint.steps(state.folder / "work" / "checkpoints")
    assert len(saved) == 1
    assert 0 < saved[0] < 50_000
    assert not (state.folder / "running.json").exists()
    assert not (state.folder / "failure.json").exists()


def test_a_process_that_dies_is_a_failure_of_its_run(tmp_path: Path) -> None:
    config = replace(preset("tiny"), steps=100_000)
    spec = RunSpec("mtm", DATA, 0, {"train": config.to_json(), "threads": 1}, "long")
    states = plan([spec], tmp_path)
    engine = LocalEngine(1)
    running = states[0].folder / "running.json"

    def kill_once(states) -> None:
        if running.exists():
            os.kill(read(running)["pid"], signal.SIGKILL)
            running.unlink()

    run_all(states, engine, kill_once)
    engine.close()
    assert states[0].reason == "its process ended with exit code -9"


def test_numbers_over_seeds_by_hand() -> None:
    three = Number((1.0, 2.0, 3.0))
    assert (three.mean, three.std) == (2.0, 1.0)
    assert three.interval == pytest.approx(4.303 / 3**0.5)
    assert three.text() == "2.0 ± 1.0 [-0.5, 4.5]"
    assert Number((1.0, 2.0)).text(".2f") == "1.50 ± 0.71"
    assert Number((1.0,)).text() == "1.0"
    assert Number.of([None, None]) is None
    some = Number.of([1.0, None, 3.0], [4, 5, 6])
    assert some is not None
    assert some.by_seed == {4: 1.0, 6: 3.0}


def test_the_papers_figures_agree_with_each_other() -> None:
    """Averages of Table 1, and MTM's column against the appendix."""
    for method, average in paper.TABLE_1_AVERAGE.items():
        column = [row[method] for row in paper.TABLE_1.values()]
        assert sum(column) / 9 == pytest.approx(average, abs=0.06), method
    assert len(paper.CAPABILITIES) == 64
    assert sum(paper.COMPARABLE.values()) == 11
    for key, row in paper.TABLE_1.items():
        assert abs(row["mtm"] - paper.CAPABILITIES[(*key, "rcbc")]["mtm"].mean) < 8


def test_data_are_matched_with_the_papers(tmp_path: Path) -> None:
    hopper = facts("builtin:hopper")
    assert (hopper.row, hopper.is_papers) == (("hopper", "medium-replay"), False)
    assert facts(DATA).row is None


HOPPER = DataFacts("d4rl:hopper-expert-v2", "hopper-expert-v2", "f", "Hopper-v4",
                   ("hopper", "expert"), True, 1_000_000, 1000)  # fmt: skip


def made_up(specs: list[RunSpec], score) -> list[Result]:
    """Results as the methods give them, with scores of one's own."""

    def roll(spec: RunSpec, task: str) -> dict:
        return {"score": {"mean": score(spec, task)}, "return": {"mean": 0.0}, "target": 1607.0}

    def tasks(spec: RunSpec) -> dict:
        found: dict = {}
        for task in spec.settings["evaluate"].get("tasks", [spec.method]):
            one = roll(spec, task)
            if task in ("fd", "id"):
                found[task] = {"normalized": score(spec, task), "raw": 2 * score(spec, task)}
            else:
                many = task in ("rcbc", "two_stage", "dt")
                found[task] = dict.fromkeys(("auto", "fixed", "best"), one) if many else one
        return found

    gathered = []
    for spec in specs:
        if spec.method == "td3":
            rate = score(spec, "td3")
            points = [Point(u, u / 2, rate * min(u, 100), 0.0) for u in range(0, 201, 25)]
            value: dict = {"curve": [vars(point) for point in points]}
        else:
            last = {"step": 1, "tasks": tasks(spec)}
            value = {"last": last, "best": last, "seconds": 1.0}
        gathered.append(Result(spec, HOPPER, value, {"commit": None}, None))
    return gathered


def by_method(spec: RunSpec, task: str) -> float:
    """Better in this order, and a little by seed."""
    order = ("mlp", "dt", "td3_bc", "cql", "iql", "s-mtm", "mtm", "bc10", "rebrac", "mopo", "tt")
    return 10.0 * order.index(spec.method) + spec.seed


def test_table1_is_drawn(tmp_path: Path) -> None:
    specs = table1.runs(SMOKE, [HOPPER.spec], 3)
    assert len(specs) == 3 * (4 + len(AGENTS) + len(LONG))
    usual = min(s.settings["train"]["steps"] for s in specs if s.method == "mlp")

    def longer_is_better(spec: RunSpec, task: str) -> float:
        longer = spec.method == "mlp" and spec.settings["train"]["steps"] > usual
        return by_method(spec, task) + (5.0 if longer else 0.0)

    drawn = table1.draw(made_up(specs, longer_is_better), tmp_path)
    rows = {row[1]: row[2:] for row in drawn.tables[0].rows}
    assert rows["DT"][:3] == ["3", "1,607, score 50.0", "11.0 ± 1.0 [8.5, 13.5]"]
    assert rows["RvS (MLP)"][2] == "1.0 ± 1.0 [-1.5, 3.5]"
    assert rows["RvS (MLP), longer"][2] == "6.0 ± 1.0 [3.5, 8.5]"
    assert rows["CQL"][1] == "-"  # is told no target
    assert rows["CQL, longer"][2] == rows["CQL"][2]
    averages = {row[0]: row[1:] for row in drawn.tables[1].rows}
    assert averages["DT"] == ["1", "11.0", "11.0 [10.0, 12.0]", "74.7", "73.8"]
    assert averages["Trajectory Transformer"][3:] == ["78.9", "78.9"]
    assert averages["ReBRAC"][3:] == ["-", "89.7"]
    verdicts = {c.text: c.verdict for c in drawn.claims}
    assert verdicts["MTM's RCBC outperforms DT"] == "supported"
    assert verdicts["MTM's RCBC outperforms 10 %BC"] == "contradicted"
    assert verdicts["MTM acts as well as IQL"] == "supported"
    assert verdicts["... and as ReBRAC, longer"] == "contradicted"
    assert len(drawn.pictures) == 3
    assert all((tmp_path / name).stat().st_size > 5000 for name in drawn.pictures)
    few = [r for r in made_up(specs, by_method) if r.spec.seed < 2]
    assert {c.verdict for c in table1.draw(few, tmp_path).claims} == {"undecided"}
    part = [r if r.spec.method in ("mtm", "dt") else replace(r, value=None) for r in few]
    drawn = table1.draw(part, tmp_path)
    assert {row[1] for row in drawn.tables[0].rows} == {"MTM", "DT"}  # the others were not computed
    assert "not measured" in {c.verdict for c in drawn.claims}


def test_slow_methods_have_fewer_seeds_unless_a_number_is_named(monkeypatch) -> None:
    order = Order(["table1"], "cpu", [HOPPER.spec])

    def seeds(order: Order, name: str = "table1") -> dict[str, int]:
        module = importlib.import_module(EXPERIMENTS[name])
        specs = reproduce._runs(name, module, reproduce._scale(order), order)
        return {s.method: 1 + max(t.seed for t in specs if t.method == s.method) for s in specs}

    found = seeds(order)
    assert {m for m, n in found.items() if n == 5} == {"mtm", "mlp", "bc10"}
    assert {n for m, n in found.items() if m in LONG} == {3}
    assert set(seeds(replace(order, seeds=2)).values()) == {2}
    long = reproduce._runs("table1", table1, reproduce._scale(replace(order, long=True)), order)
    assert {s.steps for s in long if s.method == "iql"} == {10_000, 100_000}
    (evaluated,) = {json.dumps(s.settings["evaluate"]) for s in long if s.method == "mtm"}
    assert json.loads(evaluated)["episodes"] == 100
    assert json.loads(evaluated)["sweep_episodes"] == 20


def test_capabilities_are_drawn_with_the_papers_figures(tmp_path: Path) -> None:
    specs = capabilities.runs(SMOKE, [HOPPER.spec], 1)
    assert len(specs) == 1 + 4 + 4
    drawn = capabilities.draw(made_up(specs, by_method), tmp_path)
    bc, _, inverse, _ = drawn.tables[0].rows
    assert bc[2:7] == ["-", "0.0", "50.0", "60.0", "undecided"]
    assert bc[7:] == ["111.14 ± 0.33", "111.81 ± 0.18", "107.35 ± 7.77", "yes"]
    assert drawn.tables[-1].rows[0][4] == "120"
    assert len(drawn.pictures) == 2
    three = capabilities.runs(SMOKE, [HOPPER.spec], 3)
    bc, rcbc, inverse, _ = capabilities.draw(made_up(three, by_method), tmp_path).tables[0].rows
    assert (rcbc[2], rcbc[6]) == ("1,607, score 50.0", "better +10.0 [+10.0, +10.0]")
    assert inverse[6].startswith("worse x 1.2 ")  # an error: lower is better


def test_masking_and_length_are_drawn(tmp_path: Path) -> None:
    masks = {"random": 1.0, "random-autoregressive": 2.0, "balanced": 2.5, "rcbc": 3.0}
    specs = masking.runs(SMOKE, [HOPPER.spec], 1)
    made = made_up(specs, lambda spec, task: masks[spec.settings["train"]["mask"]])
    drawn = masking.draw(made, tmp_path)
    assert [c.verdict for c in drawn.claims] == ["undecided", "undecided"]  # one seed
    specs = length.runs(SMOKE, [HOPPER.spec], 3)
    made = made_up(specs, lambda s, task: s.settings["train"]["model"]["segment_length"])
    drawn = length.draw(made, tmp_path)
    assert [(row[1], row[3][:3]) for row in drawn.tables[0].rows] == [("2", "2.0"), ("4", "4.0")]
    assert drawn.claims[0].verdict == "supported"


@pytest.mark.parametrize(
    ("scale", "steps", "share"),
    [("cpu", 100_160, 0.1), ("cpu", 200_012, 0.03), ("paper", 1_000_000, 0.01)],
)
def test_two_stages_are_taught_alike_with_and_without_state_only_data(
    monkeypatch: pytest.MonkeyPatch, scale: str, steps: int, share: float
) -> None:
    monkeypatch.setattr(heteromodal, "facts", lambda spec: replace(HOPPER, steps=steps))
    specs = heteromodal.runs(SCALES[scale], [HOPPER.spec], 1)
    trained = [s.settings["train"] for s in specs if s.method == "mtm"]
    usual = "original" if scale == "paper" else "balanced"
    assert [t["mask"] for t in trained] == [f"{usual}+id"] * 2
    assert [t["drop"] for t in trained] == [{"actions": 1 - share}] * 2
    assert [t["complete_share"] for t in trained] == [1.0, 0.5]


def test_heteromodal_and_data_efficiency_are_drawn(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(heteromodal, "facts", lambda spec: HOPPER)
    scores = {"bc": 10.0, "rcbc": 20.0, "two_stage": 30.0}
    specs = heteromodal.runs(SMOKE, [HOPPER.spec], 3)
    made = made_up(specs, lambda spec, task: scores[task])
    drawn = heteromodal.draw(made, tmp_path)
    assert drawn.tables[0].rows == [
        [
            *(HOPPER.name, "10%, about 100,000 steps", "1,607, score 50.0"),
            *(f"{n} ± 0.0 [{n}, {n}]" for n in (10.0, 20.0, 20.0, 30.0, 20.0, 30.0, 10.0)),
        ]
    ]
    verdicts = {
        c.text.removeprefix("Heteromodal MTM improves over "): c.verdict for c in drawn.claims
    }
    undecided = [other for other, verdict in verdicts.items() if verdict != "supported"]
    assert (len(verdicts), undecided) == (4, ["MTM, two stages"])
    shared = data_efficiency.runs(SMOKE, [HOPPER.spec], 1)
    assert {s.key("") for s in shared} < {s.key("") for s in specs}
    drawn = data_efficiency.draw(made_up(shared, lambda spec, task: scores[task]), tmp_path)
    assert drawn.tables[0].rows == [
        [
            *(HOPPER.name, "10%", "100,000", "1,607, score 50.0"),
            *("10.0", "20.0", "20.0", "30.0", "30.0"),
        ]
    ]


def test_representation_is_drawn(tmp_path: Path) -> None:
    specs = representation.runs(SMOKE, [HOPPER.spec], 1)
    assert [len(spec.needs) for spec in specs] == [0, 0, *[1] * 7]
    specs = specs[1:]
    rates = {"raw": 1.0, "state-finetuned": 2.0}
    made = made_up(specs, lambda s, task: rates.get(s.settings["td3"]["variant"], 0.5))
    drawn = representation.draw(made, tmp_path)
    rows = {row[1]: row[2:] for row in drawn.tables[0].rows}
    assert rows["raw"] == ["75.0", "75.0", "100.0", "150", "1.00", "75", "1.00"]
    assert rows["state-finetuned"] == ["150.0", "150.0", "200.0", "75", "0.50", "38", "0.50"]
    assert rows["state-frozen"] == ["37.5", "37.5", "50.0", "never", "-", "never", "-"]
    assert {c.verdict for c in drawn.claims} == {"undecided"}  # one seed
    three = [s for s in representation.runs(SMOKE, [HOPPER.spec], 3) if s.method == "td3"]
    made = made_up(three, lambda s, task: rates.get(s.settings["td3"]["variant"], 0.5))
    claims = representation.draw(made, tmp_path).claims
    supported = [c.text for c in claims if c.verdict == "supported"]
    assert (len(claims), len(supported)) == (21, 3)
    assert all(text.startswith("state-finetuned") for text in supported)
    assert {r["variant"] for r in drawn.records if not r["reached"]} == {
        *("normalized", "state-frozen", "state-action-frozen", "state-action-finetuned"),
        *("untrained-frozen", "untrained-finetuned"),
    }
    assert all((tmp_path / name).stat().st_size > 5000 for name in drawn.pictures)
    a_file = tmp_path / "hopper.hdf5"
    a_file.touch()
    folder = tmp_path / "walker"
    folder.mkdir()
    walker = representation.runs(SCALES["cpu"], [str(a_file), str(folder)], 1)
    assert {spec.data for spec in walker} == {
        *(str(folder), f"exorl:stand:{folder}", f"exorl:walk:{folder}", f"exorl:run:{folder}")
    }
    for same in (f"exorl:{folder}", f"exorl:run:{folder}"):
        assert representation.runs(SCALES["cpu"], [same], 1) == walker
    assert representation.runs(SCALES["cpu"], ["d4rl:hopper-medium-v2"], 1) == []
    expected = replace(td3_preset("cpu"), variant="raw", seed=1)
    agents = representation.runs(SCALES["cpu"], [str(folder)], 2)
    assert agents[26].settings["td3"] == asdict(expected)  # the key holds all settings
    wanted = [s for s in agents if s.seed < recipes.seeds_of(s, replace(SMOKE, slow_seeds=0))]
    assert {s.settings.get("td3", {}).get("variant") for s in wanted} == {"raw"}


def test_times_on_a_pretrained_encoder_include_the_pretraining(tmp_path: Path) -> None:
    specs = representation.runs(SMOKE, [HOPPER.spec], 1)
    pretraining = Result(specs[0], HOPPER, {"seconds": 1000.0}, None, None)
    made = [pretraining, *made_up(specs[1:], lambda spec, task: 1.0)]
    drawn = representation.draw(made, tmp_path)
    seconds = {row[1]: row[7] for row in drawn.tables[0].rows}
    assert seconds["raw"] == seconds["normalized"] == seconds["untrained-frozen"] == "75"
    assert seconds["state-frozen"] == seconds["state-action-finetuned"] == "1,075"


@pytest.mark.parametrize("name", EXPERIMENTS)
@pytest.mark.parametrize("scale", SCALES)
def test_runs_are_complete_plain_data(name: str, scale: str, tmp_path: Path, monkeypatch) -> None:
    """Also without the data, which a test neither takes from the user's folder nor downloads."""
    monkeypatch.setenv("D4RL_DATASET_DIR", str(tmp_path))
    for kind in ("http", "https"):
        monkeypatch.setenv(f"{kind}_proxy", "http://127.0.0.1:9")  # where nobody answers
    module = importlib.import_module(EXPERIMENTS[name])
    specs = module.runs(SCALES[scale], module.DATA[scale], 2)
    for spec in specs:
        assert spec.method in methods.METHODS
        assert spec.settings["threads"] == SCALES[scale].threads
        assert RunSpec.from_json(spec.to_json()) == spec
    assert bool(specs) or name == "representation"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["representation"], "representation needs --data"),
        (["length", "--methods", "ppo"], "unknown method 'ppo'"),
        (["length", "--seeds", "0"], "--seeds must be at least 1, got 0"),
        (["length", "--address", "auto"], "--address is for --engine ray"),
        (["length", "--data", "nowhere.hdf5"], "no data: no data set at 'nowhere.hdf5'"),
    ],
)
def test_bad_orders(words: list, message: str, tmp_path: Path, capsys) -> None:
    assert main(["reproduce", *words, "--out", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err


def test_what_cannot_be_measured_is_a_failure(tmp_path: Path) -> None:
    found, _ = compute(length.runs(SMOKE, [DATA], 1)[:1], tmp_path)
    assert found[0].reason is not None
    assert found[0].reason.startswith("could not measure bc, rcbc: no environment")
