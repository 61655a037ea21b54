"""Settings: all faults at once, and the way through JSON."""

from __future__ import annotations

import json

import pytest

from mtm.core.config import PRESETS, DeviceConfig, ModelConfig, Reading, TrainConfig, preset
from mtm.core.config_io import differences
from mtm.core.errors import ConfigError
from mtm.runs.migrations import run_settings


def test_all_faults_are_reported_at_once() -> None:
    with pytest.raises(ConfigError) as raised:
        TrainConfig(
            steps=0,
            mask="rbc",
            visible_fraction=(0.9, 0.1),
            model=ModelConfig(width=30, heads=4, dropout=2.0),
        )
    message = str(raised.value)
    assert message.startswith("the settings have 5 fault(s)")
    for part in (
        "steps must be at least 1, got 0",
        "Did you mean 'rcbc'",
        "visible_fraction",
        "model.width 30 must be a multiple of model.heads 4",
        "model.dropout must be in [0, 1), got 2.0",
    ):
        assert part in message


def test_a_modality_is_read_from_one_place() -> None:
    with pytest.raises(ConfigError, match=r"reading.columns names a modality twice: a=x a=y"):
        TrainConfig(reading=Reading(columns=("a=x", "a=y")))


def test_a_modality_is_modelled_once() -> None:
    with pytest.raises(ConfigError, match=r"modalities names a modality twice: a b a"):
        TrainConfig(modalities=("a", "b", "a"))


def test_faults_in_json_are_reported_at_once() -> None:
    plain = {"stepz": 5, "seed": "one", "model": {"widht": 3, "heads": 2.5}, "returns": 3}
    with pytest.raises(ConfigError) as raised:
        TrainConfig.from_json(plain)
    message = str(raised.value)
    for part in (
        "unknown setting 'stepz'. Did you mean 'steps'",
        "seed must be int, got 'one'",
        "unknown setting 'model.widht'. Did you mean 'model.width'",
        "model.heads must be int, got 2.5",
        "returns must be a table of settings, got 3",
    ):
        assert part in message


@pytest.mark.parametrize("name", PRESETS)
def test_there_and_back_through_json(name: str) -> None:
    config = preset(name)
    assert TrainConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


def test_what_json_leaves_out_comes_from_the_base() -> None:
    config = TrainConfig.from_json({"model": {"width": 64}}, base=preset("tiny"))
    assert config.model.width == 64
    assert config.model.heads == preset("tiny").model.heads
    assert config.steps == preset("tiny").steps


def test_the_paper_preset_is_the_paper_s() -> None:
    paper = preset("paper")
    assert (paper.model.width, paper.model.encoder_layers, paper.model.decoder_layers) == (
        512,
        2,
        1,
    )
    assert (paper.model.heads, paper.model.segment_length, paper.model.dropout) == (4, 4, 0.1)
    assert (paper.batch_size, paper.steps) == (1024, 140_000)
    assert (paper.optimizer.learning_rate, paper.optimizer.warmup_steps) == (1e-4, 40_000)
    assert paper.optimizer.weight_decay == 0.01


def test_unknown_preset_lists_the_known() -> None:
    with pytest.raises(ConfigError, match="unknown preset 'papper'. Did you mean 'paper'"):
        preset("papper")


def test_device_faults_are_reported_at_once() -> None:
    with pytest.raises(ConfigError, match=r"(?s)devices must.*threads must"):
        DeviceConfig(devices=0, threads=0)


def test_a_precision_that_does_not_work_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown precision '16-mixed'. Did you mean 'bf16-mixed"):
        DeviceConfig(precision="16-mixed")  # type: ignore[arg-type]


@pytest.mark.parametrize("written", [1, 2, 3, 4, 5])
def test_settings_of_older_formats_say_what_was_done_then(written: int) -> None:
    plain = preset("cpu").to_json()
    if written < 5:
        plain["model"]["spread"] = plain["model"].pop("predict_variance")
    unsaid = {1: ("model", "spread"), 2: ("optimizer", "name")}
    for last, (table, key) in unsaid.items():
        if written <= last:
            del plain[table][key]
    if written < 3:
        plain["complete_share"] = None
    if written < 4:
        del plain["whole_modalities"]
    config = TrainConfig.from_json(run_settings({"format": written, "train": plain}))
    assert config.model.predict_variance == (written >= 2)
    assert config.optimizer.name == ("muon" if written >= 3 else "adamw")
    assert config.complete_share == (0.5 if written >= 3 else 0.0)
    assert config.whole_modalities == (0.5 if written >= 4 else 0.0)


def test_differences_are_named_by_path() -> None:
    old, new = preset("cpu").to_json(), preset("cpu").to_json()
    new["model"]["width"] = 256
    new["seed"] = 1
    assert differences(old, new) == ["model.width: 128 -> 256", "seed: 0 -> 1"]
    assert differences(json.loads(json.dumps(old)), old) == []
