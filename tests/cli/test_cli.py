"""The command line, end to end, as a user types it."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import mtm
from mtm.cli import VERBS, demo, main
from mtm.cli.train import parse
from mtm.runs import checkpoint

TRAIN = ["train", "--data", "builtin:point-mass", "--preset", "tiny", "--out"]


def test_train_resume_and_load(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "run")
    assert main([*TRAIN, out, "--stop-at", "30"]) == 0
    assert main(["train", "--out", out, "--resume"]) == 0  # settings and data are the run's own
    printed = capsys.readouterr().out
    assert "forward dynamics" in printed
    assert "step 60" in printed
    assert mtm.load_run(out).step == 60
    assert main([*TRAIN, str(tmp_path / "whole")]) == 0
    resumed = checkpoint.load(tmp_path / "run" / "checkpoints").model
    whole = checkpoint.load(tmp_path / "whole" / "checkpoints").model
    assert all(torch.equal(resumed[name], whole[name]) for name in whole)


def test_dicts_are_pairs_on_the_command_line(tmp_path: Path, capsys) -> None:
    words = ["--out", "x", "--drop", "actions=0.9", "--mask-weights", "actions=0.7", "states=.3"]
    words += ["--reading.columns", "states=x,y", "torque=u", "--reading.roles", "torque=action"]
    settings = parse(words).settings
    assert settings.drop == {"actions": 0.9}
    assert settings.mask_weights == {"actions": 0.7, "states": 0.3}
    assert settings.reading.columns == {"states": ("x", "y"), "torque": ("u",)}
    assert settings.reading.roles == {"torque": "action"}
    file = tmp_path / "settings.json"
    file.write_text(json.dumps(settings.to_json()))
    given = ["--out", "x", "--config", str(file)]
    assert parse(given).settings == settings
    assert parse([*given, "--drop", "states=0.1"]).settings.drop == {"states": 0.1}
    assert parse([*given, "--drop"]).settings.drop == {}
    with pytest.raises(SystemExit):
        parse([*given, "--help"])
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "--drop [NAME=NUMBER [NAME=NUMBER ...]]" in shown
    assert "(default: actions=0.7 states=0.3)" in shown
    assert "(default: states=x,y torque=u)" in shown


def test_settings_of_an_older_form(tmp_path: Path, capsys) -> None:
    """With the description of the run, or alone."""
    reading = {"columns": ["states=x,y"]}
    plain = {"drop": ["actions=0.9"], "model": {"spread": False}, "reading": reading}
    for content in (plain, {"format": 4, "train": plain}):
        file = tmp_path / "old.json"
        file.write_text(json.dumps(content))
        settings = parse(["--out", "x", "--config", str(file)]).settings
        assert settings.drop == {"actions": 0.9}
        assert settings.reading.columns == {"states": ("x", "y")}
        assert not settings.model.predict_variance
    file.write_text(json.dumps({"drop": ["actions=most"], "gaps": [3]}))
    assert main([*TRAIN, "x", "--config", str(file)]) == 2
    error = capsys.readouterr().err
    assert "drop must be dict[str, float], got {'actions': 'most'}" in error
    assert "gaps must be dict[str, float], got [3]" in error


def test_a_run_s_config_can_be_given_back(tmp_path: Path) -> None:
    first = tmp_path / "first"
    assert main([*TRAIN, str(first), "--steps", "2", "--model.width", "24", "--seed", "7"]) == 0
    words = ["--config", str(first / "config.json"), "--out", "x", "--batch-size", "8"]
    settings = parse(words).settings
    assert (settings.steps, settings.model.width, settings.seed) == (2, 24, 7)
    assert settings.batch_size == 8


def test_a_run_is_resumed_with_its_precision(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"format": 4, "train": {}, "precision": "bf16-mixed"}')
    run = ["--out", str(tmp_path), "--preset", "tiny"]
    assert parse([*run, "--resume"]).device.precision == "bf16-mixed"
    assert parse([*run, "--resume", "--precision", "64-true"]).device.precision == "64-true"
    assert parse([*run, "--overwrite"]).device.precision == "32-true"


def test_an_older_run_stays_what_it_was(tmp_path: Path, capsys) -> None:
    """Its file does not say what nobody could choose then; today's defaults are others."""
    out = tmp_path / "old"
    assert main([*TRAIN, str(out), "--whole-modalities", "0", "--stop-at", "2"]) == 0
    file = out / "config.json"
    plain = json.loads(file.read_text()) | {"format": 3}
    del plain["train"]["whole_modalities"]
    plain["train"]["model"]["spread"] = plain["train"]["model"].pop("predict_variance")
    file.write_text(json.dumps(plain))
    assert parse(["--config", str(file), "--out", "x"]).settings.whole_modalities == 0.0
    assert main(["train", "--out", str(out), "--resume", "--stop-at", "4"]) == 0
    assert mtm.load_run(out).step == 4
    for damage, message in [({"format": 99}, "upgrade mtm"), ({"format": "x"}, "is damaged")]:
        file.write_text(json.dumps(plain | damage))
        assert main([*TRAIN, "x", "--config", str(file)]) == 2
        assert message in capsys.readouterr().err


def test_an_existing_run_is_refused_then_overwritten(tmp_path: Path, capsys) -> None:
    words = [*TRAIN, str(tmp_path / "run"), "--steps", "2"]
    assert main(words) == 0
    assert main(words) == 2
    assert "already holds a run" in capsys.readouterr().err
    assert main([*words, "--overwrite"]) == 0


def test_all_faults_of_the_settings_at_once(tmp_path: Path, capsys) -> None:
    words = [*TRAIN, str(tmp_path / "run"), "--steps", "0", "--mask", "rbc", "--model.heads", "3"]
    words += ["--drop", "actions", "--gaps", "states=2", "--optimizer.clip-norm", "nan"]
    words += ["--reading.roles", "u=agent", "--devices", "0"]
    assert main(words) == 2
    error = capsys.readouterr().err
    assert "8 fault(s)" in error
    assert "Did you mean 'rcbc'" in error
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["trian"], "Did you mean 'train'"),
        (["trian", "--data", "x"], "unknown command 'trian'. Did you mean 'train'"),
        (["train", "--out", "x"], "error: --data is needed"),
        (["train", "--out", "x", "--resume"], "x holds no run to resume; to start one, --data is"),
        (["train", "--out", "x", "--data", "nowhere.hdf5"], "no data set at 'nowhere.hdf5'"),
        (["train", "--out", "x", "--preset", "cpuu"], "Did you mean 'cpu'"),
        (["train", "--out", "x", "--config", "nowhere.json"], "cannot be read as JSON"),
        (["data", "info", "builtin:x"], "unknown built-in data set"),
        (["data", "inof", "x"], "Did you mean 'data info'"),
        (["masks", "show", "rbc"], "Did you mean 'rcbc'"),
        (["masks", "show", "fd", "--length", "1"], "fd: this mask needs a segment of at least 2"),
    ],
)
def test_errors_are_one_message_and_exit_code_2(words, message, capsys) -> None:
    assert main(words) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert message in printed.err
    assert "Traceback" not in printed.err


def test_a_faulty_json_config(tmp_path: Path, capsys) -> None:
    file = tmp_path / "settings.json"
    file.write_text(json.dumps({"train": {"stepz": 1, "model": {"width": "x"}}}))
    assert main([*TRAIN, "x", "--config", str(file)]) == 2
    error = capsys.readouterr().err
    assert "'stepz'" in error
    assert "model.width must be int" in error


def test_data_info(capsys) -> None:
    assert main(["data", "info", "builtin:point-mass"]) == 0
    printed = capsys.readouterr().out
    assert "400 episodes, 20,000 steps" in printed
    assert "states" in printed


def test_masks_are_drawn(capsys) -> None:
    assert main(["masks", "show", "rcbc", "--length", "3"]) == 0
    assert "actions   ■  ■  ?" in capsys.readouterr().out
    assert main(["masks", "show", "random-autoregressive", "--draws", "4"]) == 0
    assert capsys.readouterr().out.count("states") == 4
    assert main(["masks", "show", "random+rcbc+id", "--draws", "2"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("states  ") == 2 + 1 + 1
    _, _, rcbc = printed.partition("\nrcbc: ")
    assert rcbc.index("■  ■  ■  ?") < rcbc.index("\nid: ") < rcbc.index("·  ·  ?  ·")
    assert main(["masks", "list"]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert tuple(listed) == mtm.masks.NAMES


def test_random_masks_are_drawn_as_training_draws_them(capsys) -> None:
    """Of a share of each modality something is always seen; half of the training's are whole."""
    assert main(["masks", "show", "random", "--draws", "20"]) == 0
    printed = capsys.readouterr().out
    assert "in 50% of the samples" in printed
    assert "states    ·  ·  ·  ·" in printed


def test_help_names_every_verb(capsys) -> None:
    assert main(["--help"]) == 0
    printed = capsys.readouterr().out
    assert all(f"mtm {verb}" in printed for verb in VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(verb: str, capsys) -> None:
    with pytest.raises(SystemExit) as done:
        main([*verb.split(), "--help"])
    assert done.value.code == 0
    assert f"mtm {verb}" in capsys.readouterr().out


def test_help_and_settings_load_neither_torch_nor_numpy() -> None:
    """Start-up stays quick: they are loaded by the verbs that compute."""
    program = (
        "import sys, mtm, mtm.core.config, mtm.cli; mtm.cli.main(['--help']); "
        "assert not {'torch', 'numpy'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_modules_can_be_imported_alone() -> None:
    folder = Path(mtm.__file__).parent
    names = sorted(
        "mtm." + ".".join(path.relative_to(folder).with_suffix("").parts)
        for path in folder.rglob("*.py")
        if path.name not in ("__init__.py", "__main__.py")
    )
    # A fresh process each would take minutes; one that forgets mtm between imports is as strict.
    forget = "for m in [m for m in sys.modules if m.split('.')[0] == 'mtm']: del sys.modules[m]\n"
    program = "import importlib, sys\n" + "".join(
        f"importlib.import_module({name!r})\n{forget}" for name in names
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("verb", ["eval", "rollout", "report"])
def test_every_verb_that_asks_a_run_chooses_its_device(verb: str, tmp_path: Path, capsys) -> None:
    out = str(tmp_path / "run")
    assert main([*TRAIN, out, "--steps", "2"]) == 0
    assert main([verb, out, "--device", "nowhere"]) == 2
    assert "the device 'nowhere' cannot be used here" in capsys.readouterr().err
    assert main([verb, out, "--threads", "0"]) == 2
    assert "--threads must be at least 1, got 0" in capsys.readouterr().err


def test_a_mix_with_weights_trains_from_the_command_line(tmp_path: Path, capsys) -> None:
    mix = "random-autoregressive:0.7+fd:0.1+id:0.1+rcbc:0.1"
    out = tmp_path / "run"
    assert main([*TRAIN, str(out), "--steps", "2", "--mask", mix]) == 0
    assert mtm.load_run(out).description.train.mask == mix
    assert main([*TRAIN, str(tmp_path / "x"), "--mask", "fd:0.5+id"]) == 2
    assert "give every mask a weight" in capsys.readouterr().err
    assert main(["masks", "show", mix]) == 0
    assert "inverse dynamics" in capsys.readouterr().out


def test_members_are_trained_asked_and_evaluated(tmp_path: Path, capsys) -> None:
    out = tmp_path / "run"
    assert main([*TRAIN, str(out), "--members", "2", "--stop-at", "30"]) == 0
    assert main(["train", "--out", str(out), "--resume"]) == 0
    run = mtm.load_run(out)
    assert (run.members, run.step) == (2, 60)
    assert parse(["--out", "x", "--model.members", "4"]).settings.model.members == 4
    np.savez(tmp_path / "log.npz", states=np.ones((8, 4), np.float32), offsets=[0, 8])
    words = ["predict", str(out), "--given", "states", "--want", "actions"]
    words += ["--input", str(tmp_path / "log.npz"), "--output", str(tmp_path / "filled.npz")]
    assert main(words) == 0
    assert np.load(tmp_path / "filled.npz")["actions"].shape == (8, 2)
    assert main(["eval", str(out), "--tasks", "fd", "id", "--json", str(tmp_path / "x.json")]) == 0
    assert json.loads((tmp_path / "x.json").read_text())["tasks"]["id"]["normalized"] > 0
    capsys.readouterr()
    assert main([*TRAIN, str(tmp_path / "none"), "--members", "0"]) == 2
    assert "model.members must be in [1, 256], got 0" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


def test_predictions_replace_no_file(tmp_path: Path, capsys) -> None:
    out, log = str(tmp_path / "run"), tmp_path / "log.npz"
    assert main([*TRAIN, out, "--steps", "2"]) == 0
    np.savez(log, states=np.zeros((8, 4), np.float32), offsets=[0, 8])
    before = log.read_bytes()
    words = ["predict", out, "--given", "states", "--want", "actions", "--input", str(log)]
    assert main([*words, "--output", str(log)]) == 2
    assert "exists already" in capsys.readouterr().err
    assert log.read_bytes() == before
    assert main([*words, "--output", str(tmp_path / "new.npz")]) == 0


def test_what_is_not_a_run_is_told_with_what_is(tmp_path: Path, capsys) -> None:
    assert main([*TRAIN, str(tmp_path / "mine"), "--steps", "2"]) == 0
    assert main(["report", str(tmp_path)]) == 2
    assert "It holds mine: name one of them." in capsys.readouterr().err
    assert main(["report", str(tmp_path / "nothing")]) == 2
    assert "there is no directory" in capsys.readouterr().err


def test_a_missing_extra_is_named_whole(tmp_path: Path, capsys, monkeypatch) -> None:
    """Square brackets mean nothing to a terminal."""
    out = str(tmp_path / "run")
    words = ["train", "--data", "builtin:hopper", "--preset", "tiny", "--steps", "2", "--out", out]
    assert main(words) == 0
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    assert main(["eval", out, "--tasks", "bc", "--episodes", "1"]) == 0
    assert 'pip install "masked-trajectory-models[sim]"' in capsys.readouterr().out


def test_a_name_given_for_what_it_names_is_told(tmp_path: Path) -> None:
    with pytest.raises(mtm.ConfigError, match="config must be a TrainConfig.*got 'tiny'"):
        mtm.train("builtin:point-mass", "tiny", tmp_path / "x")  # type: ignore[arg-type]
    with pytest.raises(mtm.ConfigError, match="mask must be a function of your own, got 'fd'"):
        mtm.train("builtin:point-mass", mtm.preset("tiny"), tmp_path / "x", mask="fd")  # type: ignore[arg-type]
    with pytest.raises(mtm.ConfigError, match="policies are given by name"):
        mtm.rollout(object(), "Hopper-v5")  # type: ignore[arg-type]


@pytest.mark.usefixtures("_one_thread")
def test_an_interrupted_training_is_saved_and_exits_with_130(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mtm.training.masked_model import MaskedTrainer

    def step(trainer: MaskedTrainer, number: int) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        take(trainer, number)

    take = MaskedTrainer.step
    monkeypatch.setattr(MaskedTrainer, "step", step)
    words = ["train", "--data", "builtin:point-mass", "--out", str(out), "--preset", "tiny"]
    assert main([*words, "--batch-size", "4", "--validation-segments", "8"]) == 130
    assert mtm.load_run(out).step == 1


def test_a_name_that_no_disk_takes_is_an_error(capsys) -> None:
    assert main(["eval", "x" * 5000]) == 2
    assert "File name too long" in capsys.readouterr().err


def test_the_demo_tells_a_command_that_is_there(monkeypatch, tmp_path) -> None:
    """As for who ran `make demo`: without an environment that is switched on."""
    monkeypatch.setenv("PATH", str(tmp_path))
    first = shlex.split(demo.program())[0]
    assert Path(first).exists()
    assert (
        subprocess.run([*shlex.split(demo.program()), "--help"], capture_output=True).returncode
        == 0
    )
    (tmp_path / "mtm").touch(0o755)
    assert demo.program() == "mtm"
