"""Settings: all faults at once, and the way through JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest

from mtm.core.config import (
    PRESETS,
    DeviceConfig,
    ModelConfig,
    OptimizerConfig,
    ReturnsConfig,
    TrainConfig,
    preset,
)
from mtm.core.config_io import differences, gathering
from mtm.core.errors import ConfigError
from mtm.core.reading import Reading
from mtm.research.baselines.critic_settings import (
    CQLConfig,
    CriticConfig,
    DynamicsConfig,
    IQLConfig,
    MOPOConfig,
    ReBRACConfig,
    TD3BCConfig,
)
from mtm.research.baselines.imitation_settings import BC10Config, DTConfig, TTConfig
from mtm.research.baselines.settings import AgentConfig
from mtm.research.baselines.td3_config import TD3Config
from mtm.runs.migrations import run_settings


def test_all_faults_are_reported_at_once() -> None:
    plain = {
        "steps": 0,
        "mask": "rbc",
        "visible_fraction": [0.9, 0.1],
        "model": {"width": 30, "heads": 4, "dropout": 2.0},
    }
    with pytest.raises(ConfigError) as raised:
        TrainConfig.from_json(plain)
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


@pytest.mark.parametrize(
    ("part", "settings", "message"),
    [
        (ModelConfig, {"width": 0}, r"model.width must be in \[1, 65536\], got 0"),
        (ModelConfig, {"width": 1 << 20}, r"model.width must be in \[1, 65536\], got 1048576"),
        (ModelConfig, {"width": 63}, "model.width 63 must be a multiple of model.heads 4"),
        (ModelConfig, {"members": 0}, r"model.members must be in \[1, 256\], got 0"),
        (ModelConfig, {"members": 2.5}, "model.members must be a whole number, got 2.5"),
        (ModelConfig, {"members": True}, "model.members must be a number, got True"),
        (ModelConfig, {"width": 64.0}, "model.width must be a whole number, got 64.0"),
        (ModelConfig, {"width": "64"}, "model.width must be a number, got '64'"),
        (ModelConfig, {"width": None}, "model.width must be a number, got None"),
        (ModelConfig, {"encoder_layers": 5000}, r"encoder_layers must be in \[1, 1024\]"),
        (ModelConfig, {"segment_length": 10**6}, r"segment_length must be in \[1, 65536\]"),
        (ModelConfig, {"dropout": math.nan}, "dropout must be finite and in"),
        (ModelConfig, {"network": "rnn"}, "unknown model.network 'rnn'"),
        (Reading, {"columns": ("a=x",)}, r"columns must be a dict such as .*, got \('a=x',\)"),
        (Reading, {"columns": {"a": ()}}, "'a' needs names of columns"),
        (Reading, {"roles": {"a": "agent"}}, "unknown role in reading.roles: 'agent'"),
        (ReturnsConfig, {"discount": 0}, r"returns.discount must be in \(0, 1\], got 0"),
        (ReturnsConfig, {"horizon": 0}, "returns.horizon must be at least 1, got 0"),
        (OptimizerConfig, {"learning_rate": math.inf}, "must be finite and above 0, got inf"),
        (OptimizerConfig, {"learning_rate": 10**400}, "must be finite and above 0"),
        (OptimizerConfig, {"warmup_steps": 10**30}, "warmup_steps must be at most"),
        (TrainConfig, {"steps": 10**30}, "steps must be at most 9,007,199,254,740,992, got 1"),
        (TrainConfig, {"batch_size": 10**400}, "batch_size must be finite"),
        (TrainConfig, {"seed": 10**24}, r"seed must be in \[0, 9223372036854775807\]"),
        (TrainConfig, {"mask_weights": {"a": math.nan}}, "mask_weights of 'a' must be finite"),
        (ModelConfig, {"width": 10**9}, r"width must be in \[1, 65536\]"),
        (ModelConfig, {"encoder_layers": 10**30}, r"encoder_layers must be in \[1, 1024\]"),
        (OptimizerConfig, {"learning_rate": math.nan}, "must be finite and above 0, got nan"),
        (OptimizerConfig, {"clip_norm": math.nan}, "clip_norm must be finite and at least 0"),
        (OptimizerConfig, {"betas": (0.9, math.nan)}, "optimizer.betas must be two numbers"),
        (TrainConfig, {"seed": 2**63}, r"seed must be in \[0, 9223372036854775807\]"),
        (TrainConfig, {"mask_weights": {"a": math.inf}}, "mask_weights of 'a' must be finite"),
        (TrainConfig, {"drop": {"a": math.nan}}, r"drop of 'a' must be finite and in \[0, 1\]"),
        (TrainConfig, {"visible_fraction": (0.5,)}, "visible_fraction must be a range"),
        (TrainConfig, {"visible_fraction": (math.nan, 1)}, "visible_fraction must be a range"),
        (DeviceConfig, {"threads": 0}, "threads must be at least 1, got 0"),
        (AgentConfig, {"seed": -1}, "seed must be in"),
        (CriticConfig, {"learning_rate": math.nan}, "critic.learning_rate must be finite"),
        (IQLConfig, {"expectile": 1.0}, r"iql.expectile must be in \(0, 1\), got 1.0"),
        (CQLConfig, {"sampled_actions": 0}, "cql.sampled_actions must be at least 1"),
        (TD3BCConfig, {"alpha": math.inf}, "td3_bc.alpha must be finite"),
        (ReBRACConfig, {"actor_penalty": -1}, "rebrac.actor_penalty must be at least 0"),
        (MOPOConfig, {"real_share": 1.5}, r"mopo.real_share must be in \[0, 1\]"),
        (DynamicsConfig, {"elites": 9}, "dynamics.elites must be at most dynamics.networks 7"),
        (BC10Config, {"share": 0}, r"bc10.share must be in \(0, 1\], got 0"),
        (DTConfig, {"context": 0}, "dt.context must be in"),
        (TTConfig, {"window": 11}, "at most tt.context, got 4, 11 and 10"),
        (TTConfig, {"bins": 1}, r"tt.bins must be in \[2, 10000\], got 1"),
        (TD3Config, {"hidden": 10**6}, r"hidden must be in \[1, 65536\]"),
        (TD3Config, {"encoder_learning_rate": 0}, "encoder_learning_rate must be above 0"),
    ],
)
def test_every_part_checks_itself_on_birth(part: Any, settings: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        part(**settings)
    part()


def test_a_fault_is_told_once_and_gathering_ends() -> None:
    def twice(and_then: Callable[[], object]) -> None:
        with gathering():
            ModelConfig(width=0)
            ModelConfig(width=0)
            and_then()

    with pytest.raises(ConfigError, match=r"1 fault\(s\)"):
        twice(ModelConfig)
    with pytest.raises(ConfigError, match=r"1 fault\(s\)"):
        ModelConfig(width=0)
    with pytest.raises(KeyError):  # what ends it early is not hidden by faults
        twice(lambda: {}["x"])


def test_a_column_may_be_said_without_a_tuple() -> None:
    columns: dict[str, str | tuple[str, ...]] = {"torque": "uu", "states": ("x", "y")}
    reading = Reading(columns=columns)
    assert reading == Reading(columns={"torque": ("uu",), "states": ("x", "y")})
    assert reading.columns_of() == {"torque": ("uu",), "states": ("x", "y")}
    columns["more"] = "z"
    assert "more" not in reading.columns


def test_settings_do_not_change_with_the_caller_s_dict() -> None:
    drop = {"actions": 0.5}
    config = TrainConfig(drop=drop)
    drop["actions"] = 7.0
    assert config.drop == {"actions": 0.5}


def test_dicts_of_a_file_replace_those_of_the_base() -> None:
    base = TrainConfig(drop={"actions": 0.5}, mask_weights={"actions": 1.0})
    config = TrainConfig.from_json({"drop": {"states": 1}, "mask_weights": {}}, base)
    assert (config.drop, config.mask_weights) == ({"states": 1.0}, {})


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


PAPER: dict[str, Any] = {
    # The paper's table of hyperparameters.
    "steps": 140_000,
    "batch_size": 1024,
    "model.width": 512,
    "model.dropout": 0.1,
    "optimizer.name": "adamw",
    "optimizer.learning_rate": 1e-4,
    "optimizer.warmup_steps": 40_000,
    "optimizer.weight_decay": 0.01,
    # The paper's text and the original code.
    "mask": "original",
    "mask_per": "batch",
    "whole_modalities": 0.0,
    "loss_on": "all",
    "action_loss": "squared",
    "model.original": True,
    "model.residual": False,
    "model.predict_variance": False,
    "optimizer.clip_norm": 0.0,
    "optimizer.final_share": 0.0,
    "optimizer.averaged_share": 0.0,
    # How often something is written, which changes nothing that is learned.
    "validate_every": 5000,
    "checkpoint_every": 5000,
    "log_every": 100,
}
"""Everything in which the `paper` preset departs from `cpu`."""

SHARED: dict[str, Any] = {
    # What the paper or its code says, and `cpu` has as well.
    "model.segment_length": 4,
    "model.encoder_layers": 2,
    "model.decoder_layers": 1,
    "model.heads": 4,
    "model.network": "transformer",
    "model.members": 1,
    "model.values": 0.0,
    "optimizer.betas": (0.9, 0.999),
    "visible_fraction": (0.4, 1.0),
    "mask_weights": {},
    "returns.kind": "average",
    "returns.discount": 1.0,
    "validation_fraction": 0.05,
}


def flat(settings: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings by their path; dicts of a user's own names stay whole."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        is_part = isinstance(value, dict) and name in ("reading", "model", "returns", "optimizer")
        found |= flat(value, f"{prefix}{name}.") if is_part else {f"{prefix}{name}": value}
    return found


def test_the_paper_preset_departs_from_cpu_in_nothing_else() -> None:
    paper, cpu = flat(preset("paper").to_json()), flat(preset("cpu").to_json())
    assert set(paper) == set(cpu)
    assert {name: value for name, value in paper.items() if value != cpu[name]} == PAPER
    assert {name: paper[name] for name in SHARED} == SHARED


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
        plain |= {"drop": ["actions=0.9"], "gaps": []}
        plain["reading"] |= {"columns": ["states=x,y", "u=u"], "roles": ["u=action"]}
    unsaid = {1: ("model", "spread"), 2: ("optimizer", "name")}
    for last, (table, key) in unsaid.items():
        if written <= last:
            del plain[table][key]
    if written < 3:
        plain["complete_share"] = None
    if written < 4:
        del plain["whole_modalities"]
    config = TrainConfig.from_json(run_settings({"format": written, "train": plain}))
    assert config.drop == ({"actions": 0.9} if written < 5 else {})
    said = {"states": ("x", "y"), "u": ("u",)}, {"u": "action"}
    assert (config.reading.columns, config.reading.roles) == (said if written < 5 else ({}, {}))
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


def test_a_mix_may_be_a_dict() -> None:
    config = TrainConfig(mask={"random-autoregressive": 0.7, "fd": 0.3})  # type: ignore[arg-type]
    assert config.mask == "random-autoregressive:0.7+fd:0.3"
    assert TrainConfig.from_json(config.to_json()) == config


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mask": None}, "mask must be a str, got None"),
        ({"model": {"width": 64}}, "model must be a ModelConfig"),
        ({"modalities": "states"}, "modalities must be a tuple of names, got 'states'"),
        ({"trackers": "wandb"}, "trackers must be a tuple of names"),
        ({"visible_fraction": None}, "visible_fraction must be a range"),
        ({"visible_fraction": ("a", "b")}, "visible_fraction must be a range"),
    ],
)
def test_settings_of_another_kind_are_told(settings, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TrainConfig(**settings)
    with pytest.raises(ConfigError, match="optimizer.betas must be two numbers"):
        OptimizerConfig(betas=0.9)  # type: ignore[arg-type]
