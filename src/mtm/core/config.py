"""Settings as plain dataclasses, checked together so that all faults are reported at once.

This module imports neither torch nor numpy: the command line is built from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from mtm.core.config_io import from_plain, raise_if
from mtm.core.errors import ConfigError, unknown
from mtm.core.mask_mix import mix_faults

# Not 16-mixed: its gradients are clipped while still scaled up, and no checkpoint has its scale.
Precision = Literal["32-true", "bf16-mixed", "bf16-true", "64-true"]

MASK_NAMES = (
    *("random", "random-autoregressive"),
    *("bc", "rcbc", "id", "fd", "goal", "waypoints", "past", "plan"),
)
"""The masks of `mtm.masks`, named here so that settings are checked without loading it."""

ROLES = ("state", "return", "action", "reward")
"""The roles of `mtm.data.modalities`."""

CUSTOM_MASK = "custom"
"""What a run says whose mask was a function of the user's own."""


def shares_of(pairs: tuple[str, ...]) -> dict[str, float]:
    """Modality -> share, from NAME=SHARE."""
    return {name: float(share) for name, _, share in (pair.partition("=") for pair in pairs)}


def _named_twice(setting: str, pairs: tuple[str, ...]) -> list[str]:
    """A fault if two of NAME=... have the same name."""
    names = [pair.partition("=")[0] for pair in pairs]
    if len(set(names)) == len(names):
        return []
    return [f"{setting} names a modality twice: {' '.join(pairs)}"]


def _share_faults(setting: str, pairs: tuple[str, ...]) -> list[str]:
    faults = []
    for pair in pairs:
        name, _, text = pair.partition("=")
        try:
            share = float(text)
        except ValueError:
            share = -1.0
        if not name or not 0 <= share <= 1:
            faults.append(f"{setting}: {pair!r} is not of the form NAME=SHARE, a share in [0, 1]")
    return faults + _named_twice(setting, pairs)


@dataclass(frozen=True)
class ModelConfig:
    """The network."""

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
    residual: bool = True
    """Predict states as changes from the line between the visible ones of the same modality."""
    predict_variance: bool = True
    """Also predict how far off every number may be; what is surer then counts more in the loss."""

    def faults(self) -> list[str]:
        """Everything that is wrong."""
        faults = [
            f"model.{name} must be at least {low}, got {getattr(self, name)}"
            for name, low in [
                ("segment_length", 1),
                ("width", 2),
                ("encoder_layers", 1),
                ("decoder_layers", 1),
                ("heads", 1),
            ]
            if getattr(self, name) < low
        ]
        if self.heads >= 1 and self.width % self.heads:
            faults.append(
                f"model.width {self.width} must be a multiple of model.heads {self.heads}"
            )
        if self.width % 2:
            faults.append(f"model.width must be even (sines and cosines), got {self.width}")
        if self.network not in ("transformer", "mlp"):
            faults.append(unknown("model.network", self.network, ("transformer", "mlp")))
        if not 0 <= self.dropout < 1:
            faults.append(f"model.dropout must be in [0, 1), got {self.dropout}")
        return faults


@dataclass(frozen=True)
class Reading:
    """How to read data whose names or gaps are the user's own; empty for all others."""

    columns: tuple[str, ...] = ()
    """NAME=COLUMN or NAME=COLUMN,COLUMN,... for each modality; empty: each under its own name."""
    roles: tuple[str, ...] = ()
    """NAME=ROLE where the name does not tell it: state, return, action or reward."""
    episode: str | None = None
    """Column that tells the episodes apart; None: a usual name, or flags that end episodes."""
    nan_is_absent: bool = False
    """Take a value with NaN in it as a gap, rather than as a fault."""

    def faults(self) -> list[str]:
        """Everything that is wrong."""
        return [
            f"reading.{what}: {pair!r} is not of the form {form}"
            for what, form in [("columns", "NAME=COLUMN,COLUMN"), ("roles", "NAME=ROLE")]
            for pair in getattr(self, what)
            if not all(pair.partition("="))
        ] + [
            *_named_twice("reading.columns", self.columns),
            *_named_twice("reading.roles", self.roles),
            *(
                unknown("role in reading.roles:", role, ROLES)
                for role in self.role_of().values()
                if role and role not in ROLES
            ),
        ]

    def columns_of(self) -> dict[str, tuple[str, ...]]:
        """Modality -> the columns that it is made of."""
        pairs = (pair.partition("=") for pair in self.columns)
        return {name: tuple(columns.split(",")) for name, _, columns in pairs}

    def role_of(self) -> dict[str, str]:
        """Modality -> its role, where it was said."""
        return {name: role for name, _, role in (pair.partition("=") for pair in self.roles)}


AS_IT_IS = Reading()
"""Nothing to say: names, roles and gaps are those of the data."""


@dataclass(frozen=True)
class ReturnsConfig:
    """How `returns` are made from `rewards`."""

    kind: Literal["average", "sum"] = "average"
    """Return-to-go per remaining step of the horizon, or its sum."""
    discount: float = 1.0
    """Factor per step."""
    horizon: int | None = None
    """For the average; None: the environment's, else the longest episode."""

    def faults(self) -> list[str]:
        """Everything that is wrong."""
        faults = []
        if self.kind not in ("average", "sum"):
            faults.append(unknown("returns.kind", self.kind, ("average", "sum")))
        if not 0 < self.discount <= 1:
            faults.append(f"returns.discount must be in (0, 1], got {self.discount}")
        if self.horizon is not None and self.horizon < 1:
            faults.append(f"returns.horizon must be at least 1, got {self.horizon}")
        return faults


@dataclass(frozen=True)
class OptimizerConfig:
    """Warm-up and cosine decay, by Muon or by AdamW alone."""

    name: Literal["muon", "adamw"] = "muon"
    """Muon for the matrices between features and AdamW for the rest, or AdamW for everything."""
    learning_rate: float = 3e-3
    """Highest learning rate, reached after the warm-up."""
    final_learning_rate: float = 0.0
    """Learning rate at the last step."""
    warmup_steps: int = 200
    """Steps of linear warm-up; the rest is cosine decay, so let there be a rest."""
    weight_decay: float = 0.3
    """On matrices only: not on biases, norms, encodings and mask tokens."""
    betas: tuple[float, float] = (0.9, 0.999)
    """AdamW's averaging."""
    clip_norm: float = 1.0
    """Largest norm of the gradient; 0 for no clipping."""

    def faults(self) -> list[str]:
        """Everything that is wrong."""
        faults = [
            f"optimizer.{name} must be at least 0, got {getattr(self, name)}"
            for name in ("final_learning_rate", "warmup_steps", "weight_decay", "clip_norm")
            if getattr(self, name) < 0
        ]
        if self.name not in ("muon", "adamw"):
            faults.append(unknown("optimizer.name", self.name, ("muon", "adamw")))
        if self.learning_rate <= 0:
            faults.append(f"optimizer.learning_rate must be above 0, got {self.learning_rate}")
        if any(not 0 <= beta < 1 for beta in self.betas):
            faults.append(f"optimizer.betas must be in [0, 1), got {self.betas}")
        return faults


@dataclass(frozen=True)
class TrainConfig:
    """Everything that defines a training run, besides the data themselves.

    Raises:
        ConfigError: Listing every fault.
    """

    steps: int = 2000
    """Optimizer steps."""
    batch_size: int = 256
    """Segments per step, over all processes together."""
    seed: int = 0
    """Makes weights, batches, masks and the split."""
    mask: str = "random-autoregressive"
    """What is hidden in training; `mtm masks list` names them. NAME+NAME mixes them equally,
    NAME:WEIGHT+NAME:WEIGHT as the weights say."""
    loss_on: Literal["all", "hidden"] = "all"
    """Tokens that the loss counts: all that are present, or only those that the mask hides."""
    visible_fraction: tuple[float, float] = (0.4, 1.0)
    """Range of the share that random masks leave visible."""
    whole_modalities: float = 0.5
    """Share of the samples in which random masks show or hide each modality as a whole instead."""
    mask_weights: dict[str, float] = field(default_factory=dict)
    """random-autoregressive: how often each modality is the first hidden one; empty: by role."""
    modalities: tuple[str, ...] = ()
    """What to model, in autoregressive order; empty: all but rewards, with returns made of them."""
    drop: tuple[str, ...] = ()
    """NAME=SHARE: take a modality away from that share of the training episodes."""
    gaps: tuple[str, ...] = ()
    """NAME=CHANCE: take a modality away from single training steps, each with that chance."""
    complete_share: float = 0.5
    """Least share of each batch that lacks no modality, where segments differ in that."""
    validation_fraction: float = 0.05
    """Share of the episodes that is held out; 0 for none."""
    validation_segments: int = 4096
    """Held-out segments that each validation looks at."""
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
        raise_if(self.faults())

    def faults(self) -> list[str]:
        """Everything that is wrong, here and in the parts."""
        faults = [
            f"{name} must be at least {low}, got {getattr(self, name)}"
            for name, low in [
                ("steps", 1),
                ("batch_size", 1),
                ("seed", 0),
                ("validation_segments", 1),
                ("validate_every", 1),
                ("checkpoint_every", 1),
                ("keep_checkpoints", 1),
                ("log_every", 1),
            ]
            if getattr(self, name) < low
        ]
        low, high = self.visible_fraction
        if not 0 <= low <= high <= 1:
            faults.append(f"visible_fraction must be a range within [0, 1], got ({low}, {high})")
        if not 0 <= self.validation_fraction < 1:
            faults.append(f"validation_fraction must be in [0, 1), got {self.validation_fraction}")
        for name in ("complete_share", "whole_modalities"):
            if not 0 <= getattr(self, name) <= 1:
                faults.append(f"{name} must be in [0, 1], got {getattr(self, name)}")
        faults += _named_twice("modalities", self.modalities)
        faults += _share_faults("drop", self.drop) + _share_faults("gaps", self.gaps)
        if self.loss_on not in ("all", "hidden"):
            faults.append(unknown("loss_on", self.loss_on, ("all", "hidden")))
        if self.mask != CUSTOM_MASK:
            faults += mix_faults(self.mask, MASK_NAMES)
        if any(weight < 0 for weight in self.mask_weights.values()):
            faults.append(f"mask_weights must be at least 0, got {self.mask_weights}")
        for name in self.trackers:
            if name not in ("tensorboard", "wandb"):
                faults.append(unknown("tracker", name, ("tensorboard", "wandb")))
        for part in (self.reading, self.model, self.returns, self.optimizer):
            faults += part.faults()
        return faults

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
    """CPU threads per process; None: this machine's cores shared out among its processes. Another
    number rounds differently."""

    def __post_init__(self) -> None:
        faults = [
            f"{name} must be at least 1, got {value}"
            for name in ("devices", "num_nodes", "threads")
            if (value := getattr(self, name)) is not None and value < 1
        ]
        if self.precision not in get_args(Precision):
            faults.append(unknown("precision", self.precision, get_args(Precision)))
        raise_if(faults)


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
        whole_modalities=0.0,
        validate_every=5000,
        checkpoint_every=5000,
        log_every=100,
        model=ModelConfig(width=512, dropout=0.1, residual=False, predict_variance=False),
        optimizer=OptimizerConfig(
            name="adamw", learning_rate=1e-4, warmup_steps=40_000, weight_decay=0.01
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
