"""From data and settings to a trained run."""

from __future__ import annotations

import warnings
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from lightning_fabric import Fabric

from mtm.core.config import CUSTOM_MASK, DeviceConfig, TrainConfig
from mtm.core.config_io import differences
from mtm.core.errors import ConfigError
from mtm.core.progress import silence
from mtm.core.randomness import Purpose, generator
from mtm.core.system import available_cores, keep_freed_memory
from mtm.data import loading
from mtm.data.loading import DataSpec
from mtm.data.modalities import Modality
from mtm.data.modality_overlap import check_overlap
from mtm.data.normalizer import Normalizer
from mtm.data.preparation import Split, prepare, split
from mtm.data.segments import Segments
from mtm.data.trajectories import TrajectoryDataset
from mtm.data.verification import verify
from mtm.masks import MaskFunction, training_mask
from mtm.models.heads import has_expectile
from mtm.models.network import check_names
from mtm.runs.description import (
    Description,
    data_differences,
    read_description,
    schema_differences,
    settings_differences,
    summarize,
)
from mtm.runs.directory import opened
from mtm.runs.run import Run, load_run
from mtm.training.masked_model import MaskedTrainer
from mtm.training.processes import Together
from mtm.training.scaffold import Loop, check_stop_at, on_first_process
from mtm.training.threads import restored_threads
from mtm.training.trackers import check_trackers
from mtm.training.validation import Validator, capabilities_of

MAY_CHANGE_ON_RESUME = frozenset(
    {"steps", "log_every", "validate_every", "checkpoint_every", "keep_checkpoints"}
    | {"trackers", "validation_segments"}
)
"""Settings that change how a run goes on, not what it is."""


@restored_threads()
def train(
    data: DataSpec | TrajectoryDataset,
    config: TrainConfig,
    out: str | Path,
    *,
    device: DeviceConfig | None = None,
    mask: MaskFunction | None = None,
    resume: bool = False,
    overwrite: bool = False,
    stop_at: int | None = None,
    silent: bool = False,
) -> Run:
    """Train a model and leave it in the run directory `out`.

    Args:
        data: A data set, or what names one (see `mtm.load_dataset`). The run remembers where it is
            and how it was read.
        config: Settings; `mtm.preset("cpu")` is a start.
        out: The run directory.
        device: Where to train; one process on this machine by default.
        mask: Your own mask function, instead of the one that the settings name.
        resume: Go on with the run that `out` holds; start one if it holds none.
        overwrite: Replace the run that `out` holds.
        stop_at: End this sitting at that step; the learning rate still runs over all steps.
        silent: Show nothing.

    Returns:
        The run, loaded from its last checkpoint.

    Raises:
        MTMError: Of the kind that says what is wrong: data, settings or run directory.
    """
    out = Path(out)
    check_stop_at(stop_at)
    _check_kinds(config, mask)
    if mask is not None:
        config = replace(config, mask=CUSTOM_MASK)
    elif config.mask == CUSTOM_MASK:
        raise ConfigError("these settings belong to a mask function of your own: pass mask=...")
    check_trackers(config.trackers)
    device = device or DeviceConfig()
    fabric = _launch(device, config.batch_size)
    if fabric.is_global_zero:
        _warn_of_warmup(config)
    with silence(silent):
        description, parts = _describe(data, config, device, resume)
    segments = Segments(parts.training, config.model.segment_length, config.complete_share)
    check_overlap(segments)
    check_names(description.modalities)
    _check_values(config, description.modalities)
    mask = mask or training_mask(config)
    _check_mask(mask, description.modalities, config.model.segment_length)
    found = partial(_differences, out, description)
    directory = opened(out, description, found, resume=resume, overwrite=overwrite)
    # Weights and dropout leave the caller's generator alone. To ask for that of every GPU would
    # take memory on each of them.
    used = [fabric.device] if fabric.device.type == "cuda" else []
    with ExitStack() as stack:
        resuming = on_first_process(fabric, lambda: stack.enter_context(directory))
        validator = _make_validator(parts.validation, description, mask)
        stack.enter_context(torch.random.fork_rng(devices=used))
        trainer = MaskedTrainer(fabric, description, segments, mask, validator)
        Loop(trainer, out, resume=resuming, silent=silent, fabric=fabric).run(stop_at)
        fabric.barrier()
    return load_run(out)


def _describe(
    data: DataSpec | TrajectoryDataset, config: TrainConfig, device: DeviceConfig, resume: bool
) -> tuple[Description, Split]:
    """Load, prepare and split the data; say what the run will be."""
    source = loading.as_dataset(data, config.reading)
    loading.check_reading(source, config.reading)
    if resume or (source.blocks is not None and not source.blocks.have_digests):
        verify(source)  # all of it at once; else each block when it is read
    if source.metadata.origin is not None:
        config = replace(config, reading=source.metadata.origin.reading)
    prepared = prepare(source, config)
    parts = split(prepared, config)
    # What was taken away is not known to the run.
    left = prepared.with_present(parts.training.present)
    summary = summarize(source, left, config.returns)
    normalizer = Normalizer.fit(parts.training)
    description = Description(config, prepared.modalities, normalizer, summary, device.precision)
    return description, parts


def _make_validator(
    validation: TrajectoryDataset | None, description: Description, mask: MaskFunction
) -> Validator | None:
    """What measures the model on the episodes of validation, if there are any."""
    if validation is None:
        return None
    config = description.train
    return Validator(
        validation,
        description.normalizer,
        segment_length=config.model.segment_length,
        mask=mask,
        loss_on=config.loss_on,
        capabilities=capabilities_of(config),
        segments=config.validation_segments,
        seed=config.seed,
    )


def _warn_of_warmup(config: TrainConfig) -> None:
    warmup = config.optimizer.warmup_steps
    if warmup >= config.steps:
        warnings.warn(
            f"optimizer.warmup_steps {warmup:,} is not below steps {config.steps:,}: the learning "
            "rate only rises and never comes down again. A tenth of the steps would do.",
            stacklevel=3,
        )


def _check_kinds(config: object, mask: object) -> None:
    """Raise a `ConfigError` where a name was given for what it names."""
    if not isinstance(config, TrainConfig):
        raise ConfigError(
            f"config must be a TrainConfig, such as mtm.preset('cpu'), got {config!r}."
        )
    if mask is not None and not callable(mask):
        raise ConfigError(
            f"mask must be a function of your own, got {mask!r}; a mask by name is a setting: "
            "TrainConfig(mask=...)."
        )


def _check_values(config: TrainConfig, modalities: tuple[Modality, ...]) -> None:
    """Raise a `ConfigError` where an expectile is to be learned of returns that there are not."""
    if config.model.values and not any(has_expectile(m, config.model) for m in modalities):
        raise ConfigError(
            f"model.values {config.model.values} is an expectile of returns, and none are modelled:"
            f" there are {', '.join(m.name for m in modalities)}. Bring rewards, or set it to 0."
        )


def _check_mask(mask: MaskFunction, modalities: tuple[Modality, ...], segment_length: int) -> None:
    """Try a mask function, so that its faults show before anything is written."""
    visible = np.asarray(mask(modalities, segment_length, 2, generator(0, Purpose.MASKS)))
    shape = (2, segment_length, len(modalities))
    if visible.shape != shape or visible.dtype != bool:
        raise ConfigError(
            f"the mask function must return booleans of shape (batch, T, M) = {shape}, got "
            f"{visible.dtype} of shape {visible.shape}."
        )


def _launch(config: DeviceConfig, batch_size: int) -> Fabric:
    """Start the processes and share this machine's cores out among them."""
    processes = config.devices * config.num_nodes
    if batch_size % processes:
        raise ConfigError(
            f"batch_size {batch_size} must be a multiple of the {processes} processes that "
            "share it (devices * num_nodes)."
        )
    strategy: str | Together = config.strategy
    if processes > 1 and config.strategy in ("auto", "ddp"):
        strategy = Together()
    try:
        fabric = Fabric(
            accelerator=config.accelerator,
            devices=config.devices,
            num_nodes=config.num_nodes,
            strategy=strategy,
            precision=config.precision,
        )
    except (ValueError, RuntimeError) as error:
        raise ConfigError(f"these device settings do not work here: {error}") from error
    fabric.launch()
    torch.set_num_threads(config.threads or max(available_cores() // config.devices, 1))
    keep_freed_memory()
    return fabric


def _differences(out: Path, description: Description) -> list[str]:
    """What differs from the run that a directory holds, so that it cannot go on with that."""
    old = read_description(out)
    found = schema_differences(old.modalities, description.modalities)
    found += data_differences(old.data, description.data)
    before, after = old.train.to_json(), description.train.to_json()
    found += settings_differences(before, after, MAY_CHANGE_ON_RESUME)
    found += differences({"precision": old.precision}, {"precision": description.precision})
    return found
