"""Settings as plain dataclasses, checked together so that all faults are reported at once.

This module imports neither torch nor numpy: the command line is built from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from mtm.core.config_io import from_plain, report
from mtm.core.errors import ConfigError, unknown
from mtm.core.mask_mix import mix_faults, mix_text
from mtm.core.names import MASKS
from mtm.core.reading import Reading
from mtm.core.validators import (
    COUNT,
    COUNT_OR_NONE,
    LAYERS,
    LENGTH,
    MEMBERS,
    NOT_NEGATIVE,
    POSITIVE,
    SEED,
    SHARE,
    SHARE_BELOW_ALL,
    UPPER_EXPECTILE,
    WIDTH,
    Range,
    is_pair,
    number_faults,
    outside,
)

# Not 16-mixed: its gradients are clipped while still scaled up, and no checkpoint has its scale.
Precision = Literal["32-true", "bf16-mixed", "bf16-true", "64-true"]

MaskPer = Literal["sample", "batch"]
LossOn = Literal["wanted", "all", "hidden"]
ActionLoss = Literal["absolute", "squared"]

COUNTED = ["steps", "batch_size", "validation_segments", "validate_every", "checkpoint_every"]
COUNTED += ["keep_checkpoints", "log_every"]

CUSTOM_MASK = "custom"
"""What a run says whose mask was a function of the user's own."""


def _listed(names: Any) -> tuple[str, ...]:
    """Names, where they are listed; one alone is told as a fault of its own."""
    return () if isinstance(names, str) else tuple(names)


@dataclass(frozen=True)
class ModelConfig:
    """The network.

    Raises:
        ConfigError: Listing every fault.
    """

    network: Literal["transformer", "mlp"] = "transformer"
    """The masked transformer, or a perceptron to compare it with (docs/guides/baselines.md)."""
    segment_length: int = 4
    """T: time steps the network sees at once."""
    width: int = 128
    """D: features per token; of an mlp, per hidden layer."""
    encoder_layers: int = 2
    """Transformer layers over the visible tokens; of an mlp, hidden layers."""
    decoder_layers: int = 1
    """Transformer layers over all tokens."""
    heads: int = 4
    """Attention heads; they divide the width."""
    dropout: float = 0.0
    """Share of activations dropped in training."""
    original: bool = False
    """Time encoding, linear maps into the decoder and first weights as in the original code
    (docs/guides/reproducing.md)."""
    residual: bool = True
    """Predict states as changes from the line between the visible ones of the same modality."""
    predict_variance: bool = True
    """Also predict how far off every number may be; what is surer then counts more in the loss."""
    members: int = 1
    """K: networks of these sizes, trained side by side on the same batches; they differ by their
    first weights and answer together."""
    values: float = 0.0
    """Also predict an upper expectile of returns, such as 0.9: the return that can be reached, for
    planning and for targets. 0: none; 0.5 would be the mean."""

    def __post_init__(self) -> None:
        report(self.faults())

    def faults(self) -> list[str]:
        """Everything that is wrong."""
        sizes = {"width": WIDTH, "heads": WIDTH}
        faults = outside(self, "model.", sizes)
        if not faults and self.width % self.heads:
            faults.append(
                f"model.width {self.width} must be a multiple of model.heads {self.heads}"
            )
        if not faults and self.width % 2:
            faults.append(f"model.width must be even (sines and cosines), got {self.width}")
        if self.network not in ("transformer", "mlp"):
            faults.append(unknown("model.network", str(self.network), ("transformer", "mlp")))
        if self.original and self.network == "mlp":
            faults.append("model.original is for the transformer; there is one mlp only")
        if self.values != 0:
            faults += outside(self, "model.", {"values": UPPER_EXPECTILE})
            if self.network == "mlp":
                faults.append("model.values is for the transformer; the mlp predicts no expectiles")
        layers = {"encoder_layers": LAYERS, "decoder_layers": LAYERS}
        others = {"segment_length": LENGTH, "dropout": SHARE_BELOW_ALL, "members": MEMBERS}
        return faults + outside(self, "model.", layers | others)


@dataclass(frozen=True)
class ReturnsConfig:
    """How `returns` are made from the modality of role reward.

    Raises:
        ConfigError: Listing every fault.
    """

    kind: Literal["average", "sum"] = "average"
    """Return-to-go per remaining step of the horizon, or its sum."""
    discount: float = 1.0
    """Factor per step."""
    horizon: int | None = None
    """For the average; None: the environment's, else the longest episode."""

    def __post_init__(self) -> None:
        report(self.faults())

    def faults(self) -> list[str]:
        """Everything that is wrong."""
        faults = outside(
            self, "returns.", {"discount": Range(0, 1, open_low=True), "horizon": COUNT}
        )
        if self.kind not in ("average", "sum"):
            faults.append(unknown("returns.kind", str(self.kind), ("average", "sum")))
        return faults


@dataclass(frozen=True)
class OptimizerConfig:
    """Warm-up and cosine decay, by Muon or by AdamW alone.

    Raises:
        ConfigError: Listing every fault.
    """

    name: Literal["muon", "adamw"] = "muon"
    """Muon for the matrices between features and AdamW for the rest, or AdamW for everything."""
    learning_rate: float = 3e-3
    """Highest learning rate, reached after the warm-up."""
    final_share: float = 0.25
    """Share of the highest learning rate that is left at the last step."""
    averaged_share: float = 0.2
    """Share of the steps, the last ones, whose weights are averaged; 0: the last weights count."""
    warmup_steps: int = 200
    """Steps of linear warm-up; the rest is cosine decay, so let there be a rest."""
    weight_decay: float = 0.05
    """On matrices only: not on biases, norms, encodings and mask tokens."""
    betas: tuple[float, float] = (0.9, 0.999)
    """AdamW's averaging."""
    clip_norm: float = 1.0
    """Largest norm of the gradient; 0 for no clipping."""

    def __post_init__(self) -> None:
        report(self.faults())

    def faults(self) -> list[str]:
        """Everything that is wrong."""
        ranges = {
            "learning_rate": POSITIVE,
            "final_share": SHARE,
            "averaged_share": SHARE,
            "warmup_steps": COUNT_OR_NONE,
            "weight_decay": NOT_NEGATIVE,
            "clip_norm": NOT_NEGATIVE,
        }
        faults = outside(self, "optimizer.", ranges)
        if self.name not in ("muon", "adamw"):
            faults.append(unknown("optimizer.name", str(self.name), ("muon", "adamw")))
        if not is_pair(self.betas) or any(SHARE_BELOW_ALL.fault("", b) for b in self.betas):
            faults.append(f"optimizer.betas must be two numbers in [0, 1), got {self.betas}")
        return faults


@dataclass(frozen=True)
class TrainConfig:
    """Everything that defines a training run, besides the data themselves.

    Raises:
        ConfigError: Listing every fault.
    """

    steps: int = 2500
    """Optimizer steps."""
    batch_size: int = 768
    """Segments per step, over all processes together."""
    seed: int = 0
    """Makes weights, batches, masks and the split."""
    mask: str = "balanced"
    """What is hidden in training; `mtm masks list` names them. NAME+NAME mixes them equally,
    NAME:WEIGHT+NAME:WEIGHT as the weights say."""
    mask_per: MaskPer = "sample"
    """Draw a mask for each sample of a batch, or one for all of them, as the original code does."""
    loss_on: LossOn = "wanted"
    """Tokens that the loss counts: those that the mask wants, which for random masks are all; all
    in any case; or only those that the mask hides."""
    action_loss: ActionLoss = "absolute"
    """Errors of hidden actions that are to be chosen: absolute, which learns the median, or
    squared, the mean, too weak an action if noise was cut off. Of all else the mean is learned."""
    visible_fraction: tuple[float, float] = (0.4, 1.0)
    """Range of the share that random masks leave visible."""
    whole_modalities: float = 0.5
    """Share of the samples in which random masks show or hide each modality as a whole instead."""
    mask_weights: dict[str, float] = field(default_factory=dict)
    """random-autoregressive: how often each modality is the first hidden one; empty: by role."""
    modalities: tuple[str, ...] = ()
    """What to model, in autoregressive order; empty: all but rewards, with returns made of them."""
    drop: dict[str, float] = field(default_factory=dict)
    """Modalities to take away, each from that share of the training episodes."""
    gaps: dict[str, float] = field(default_factory=dict)
    """Modalities to take away from single training steps, each step with that chance."""
    complete_share: float = 0.5
    """Least share of each batch that lacks no modality, where segments differ in that."""
    validation_fraction: float = 0.05
    """Share of the episodes that is held out, half to choose checkpoints, half to report on; 0 for
    none."""
    validation_segments: int = 4096
    """Segments of validation that each validation looks at."""
    validate_every: int = 500
    """Steps between validations."""
    checkpoint_every: int = 500
    """Steps between checkpoints."""
    keep_checkpoints: int = 2
    """How many of the newest checkpoints stay, besides the best."""
    log_every: int = 50
    """Steps between rows of metrics.csv."""
    trackers: tuple[Literal["tensorboard", "wandb"], ...] = ()
    """Also log to these."""
    reading: Reading = field(default_factory=Reading)
    model: ModelConfig = field(default_factory=ModelConfig)
    returns: ReturnsConfig = field(default_factory=ReturnsConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)

    def __post_init__(self) -> None:
        if isinstance(self.mask, Mapping):  # a mix as a dict
            object.__setattr__(self, "mask", mix_text(self.mask))
        faults = self.faults()
        if not faults:
            for name in ("mask_weights", "drop", "gaps"):  # not to change with the caller's
                object.__setattr__(self, name, dict(getattr(self, name)))
        report(faults)

    def faults(self) -> list[str]:
        """Everything that is wrong; the parts have reported their own."""
        counts = dict.fromkeys(COUNTED, COUNT)
        shares = dict.fromkeys(("complete_share", "whole_modalities"), SHARE)
        shares["validation_fraction"] = SHARE_BELOW_ALL
        faults = outside(self, "", counts | {"seed": SEED} | shares)
        faults += self._kind_faults()
        ends = self.visible_fraction
        if not is_pair(ends) or not 0 <= ends[0] <= ends[1] <= 1:
            faults.append(f"visible_fraction must be a range within [0, 1], got {ends}")
        names = _listed(self.modalities)
        if len(set(names)) < len(names):
            faults.append(f"modalities names a modality twice: {' '.join(names)}")
        faults += number_faults("drop", self.drop, SHARE)
        faults += number_faults("gaps", self.gaps, SHARE)
        faults += number_faults("mask_weights", self.mask_weights, NOT_NEGATIVE)
        choices = {"action_loss": ActionLoss, "mask_per": MaskPer, "loss_on": LossOn}
        for name, known in choices.items():
            if (value := getattr(self, name)) not in get_args(known):
                faults.append(unknown(name, value, get_args(known)))
        if isinstance(self.mask, str) and self.mask != CUSTOM_MASK:
            faults += mix_faults(self.mask, MASKS)
        for name in _listed(self.trackers):
            if name not in ("tensorboard", "wandb"):
                faults.append(unknown("tracker", name, ("tensorboard", "wandb")))
        return faults

    def _kind_faults(self) -> list[str]:
        """Settings that are of another kind altogether."""
        parts = {
            **{"reading": Reading, "model": ModelConfig, "returns": ReturnsConfig},
            **{"optimizer": OptimizerConfig, "mask": str},
        }
        faults = [
            f"{name} must be a {kind.__name__}, got {value!r}"
            for name, kind in parts.items()
            if not isinstance(value := getattr(self, name), kind)
        ]
        return faults + [
            f"{name} must be a tuple of names, got {value!r}"
            for name in ("modalities", "trackers")
            if isinstance(value := getattr(self, name), str)
        ]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any], base: TrainConfig | None = None) -> TrainConfig:
        """Settings from plain data; what is not mentioned comes from `base`, else the defaults.

        Raises:
            ConfigError: Listing every unknown key, value of a wrong type, and fault.
        """
        return from_plain(data, base or cls())


@dataclass(frozen=True)
class DeviceConfig:
    """Where to train, and how exactly.

    The precision is part of a run. The rest is not: a run can go on elsewhere. Another kind of
    device and other numbers of processes and threads change how sums are rounded, and the first two
    what dropout draws.

    Raises:
        ConfigError: Listing every fault.
    """

    accelerator: str = "auto"
    """cpu, cuda, mps, ... or auto."""
    devices: int = 1
    """Processes on each machine, one per device."""
    num_nodes: int = 1
    """Machines; start each with torchrun or a cluster's launcher."""
    strategy: str = "auto"
    """Fabric's strategy, such as ddp."""
    precision: Precision = "32-true"
    """Of weights and arithmetic (true), or of arithmetic alone (mixed); a run keeps to its own."""
    threads: int | None = None
    """CPU threads per process, which round by number; None: this machine's cores, shared out."""

    def __post_init__(self) -> None:
        faults = outside(self, "", dict.fromkeys(("devices", "num_nodes", "threads"), COUNT))
        if self.precision not in get_args(Precision):
            faults.append(unknown("precision", str(self.precision), get_args(Precision)))
        report(faults)


PRESETS: dict[str, TrainConfig] = {
    "tiny": TrainConfig(
        steps=60,
        batch_size=32,
        validation_segments=256,
        validate_every=30,
        checkpoint_every=30,
        log_every=10,
        model=ModelConfig(width=32, encoder_layers=1, heads=2),
        optimizer=OptimizerConfig(learning_rate=3e-3, warmup_steps=10),
    ),
    "cpu": TrainConfig(),
    "paper": TrainConfig(
        steps=140_000,
        batch_size=1024,
        mask="original",
        mask_per="batch",
        loss_on="all",
        action_loss="squared",
        whole_modalities=0.0,
        validate_every=5000,
        checkpoint_every=5000,
        log_every=100,
        model=ModelConfig(
            width=512, dropout=0.1, original=True, residual=False, predict_variance=False
        ),
        optimizer=OptimizerConfig(
            name="adamw",
            learning_rate=1e-4,
            final_share=0.0,
            averaged_share=0.0,
            warmup_steps=40_000,
            weight_decay=0.01,
            clip_norm=0.0,
        ),
    ),
}
"""`tiny`: seconds, for tests. `cpu`: minutes on two cores. `paper`: the paper's tables."""


def preset(name: str) -> TrainConfig:
    """The settings of a preset.

    Raises:
        ConfigError: There is no such preset.
    """
    if name not in PRESETS:
        raise ConfigError(unknown("preset", name, PRESETS))
    return PRESETS[name]
