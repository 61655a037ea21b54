"""`mtm train`: data and settings in, a run directory out."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import tyro

from mtm.cli.interruption import tell_if_stopped
from mtm.cli.parsing import parse as parse_words
from mtm.core.config import DeviceConfig, TrainConfig, preset
from mtm.core.errors import ConfigError, RunError
from mtm.runs.migrations import check_format, modern_settings, run_precision, run_settings


@dataclass(frozen=True)
class Arguments:
    """Train a model on logged trajectories and leave it in a run directory.

    Settings come from --preset, then from --config, then from the other flags; the defaults below
    are those of the chosen preset.
    """

    out: Path
    """The run directory."""
    data: str | None = None
    """A file, a directory, or PREFIX:NAME; when resuming, the run's own if not given."""
    preset: str | None = None
    """tiny, cpu (if none is given) or paper."""
    config: Path | None = None
    """A JSON file of settings, such as the config.json of a run."""
    resume: bool = False
    """Go on with the run in --out; start one if there is none."""
    overwrite: bool = False
    """Replace the run in --out."""
    stop_at: int | None = None
    """End this sitting at that step and save; --resume goes on."""
    members: int | None = None
    """Short for --model.members: train so many networks side by side, which answer together."""
    settings: Annotated[TrainConfig, tyro.conf.arg(name="")] = field(default_factory=TrainConfig)
    device: Annotated[DeviceConfig, tyro.conf.arg(name="")] = field(default_factory=DeviceConfig)


def main(words: Sequence[str]) -> None:
    """Parse, train, and print what was measured."""
    arguments = parse(words)
    goes_on = arguments.resume and _is_run(arguments.out)
    if arguments.data is None and not goes_on:
        needed = "--data is needed: a file, a directory, or PREFIX:NAME such as builtin:hopper."
        if arguments.resume:
            needed = f"{arguments.out} holds no run to resume; to start one, {needed}"
        raise ConfigError(needed)
    from lightning_fabric.utilities.rank_zero import rank_zero_only

    from mtm.data.loading import DataSpec, load_again
    from mtm.data.trajectories import TrajectoryDataset
    from mtm.evaluation.report.tables import print_held_out
    from mtm.training.train import train

    data: DataSpec | TrajectoryDataset | None = arguments.data
    if data is None:
        spec = _read_json(arguments.out / "config.json")["data"]["spec"]
        data = load_again(spec, arguments.settings.reading)
    run = train(
        data,
        arguments.settings,
        arguments.out,
        device=arguments.device,
        resume=arguments.resume,
        overwrite=arguments.overwrite,
        stop_at=arguments.stop_at,
    )
    rank_zero_only(print_held_out)(run)
    tell_if_stopped(run.step, arguments.settings.steps, arguments.stop_at)


def parse(words: Sequence[str]) -> Arguments:
    """The command line, over the defaults that --preset, --config or --resume choose.

    Raises:
        ConfigError: Listing every fault of the settings.
    """
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--preset")
    first.add_argument("--config", type=Path)
    first.add_argument("--out", type=Path, default=Path())
    first.add_argument("--resume", action="store_true")
    chosen, _ = first.parse_known_args(words)
    default = Arguments(out=tyro.MISSING, settings=_base(chosen), device=_device(chosen))
    arguments = parse_words(Arguments, words, "mtm train", default)
    if arguments.members is None:
        return arguments
    settings = arguments.settings
    model = replace(settings.model, members=arguments.members)
    return replace(arguments, settings=replace(settings, model=model))


def _base(chosen: argparse.Namespace) -> TrainConfig:
    if chosen.preset is None and chosen.config is None and chosen.resume and _is_run(chosen.out):
        return TrainConfig.from_json(_settings(chosen.out / "config.json"))
    base = preset(chosen.preset or "cpu")
    return base if chosen.config is None else TrainConfig.from_json(_settings(chosen.config), base)


def _device(chosen: argparse.Namespace) -> DeviceConfig:
    """A run that is resumed keeps its precision."""
    if not (chosen.resume and _is_run(chosen.out)):
        return DeviceConfig()
    return DeviceConfig(precision=run_precision(_read_json(chosen.out / "config.json")))


def _settings(file: Path) -> dict[str, Any]:
    """The settings in a JSON file: its `train` table if it is a run's, else the whole."""
    content = _read_json(file)
    settings = content.get("train", content)
    if "train" in content and "format" in content:
        try:
            check_format(file, content)
            settings = run_settings(content)
        except (KeyError, TypeError) as error:
            raise RunError(f"{file} is damaged: {type(error).__name__}: {error}.") from error
    if not isinstance(settings, dict):
        raise ConfigError(f"{file}: settings must be a JSON object, got {type(settings).__name__}.")
    return settings if "format" in content else modern_settings(settings)


def _is_run(path: Path) -> bool:
    return (path / "config.json").exists()


def _read_json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise RunError(f"{file} cannot be read as JSON: {error}.") from error
    if not isinstance(content, dict):
        raise RunError(f"{file} must hold a JSON object, got {type(content).__name__}.")
    return content
