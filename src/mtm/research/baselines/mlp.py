"""The settings of a perceptron (`mtm.models.mlp`) for one capability."""

from __future__ import annotations

from dataclasses import replace

from mtm.core.config import TrainConfig
from mtm.core.names import Capability
from mtm.research.baselines.specialised import SEGMENT_LENGTHS, specialised_config


def mlp_config(capability: Capability, scale: str = "cpu") -> TrainConfig:
    """The settings of a perceptron for one capability.

    It sees what the capability gives and learns only what it asks for: one step for cloning (the
    return-conditioned one is RvS), two for dynamics. It has the optimizer and the loss of the
    masked model, but for the predicted variance, which a perceptron does not have.

    Args:
        capability: bc, rcbc, id or fd.
        scale: `paper` has the settings of the paper's appendix; `cpu` and `tiny` are the budgets of
            the presets of the same name, with a network of a size that fits them.

    Raises:
        ConfigError: There is no such capability or scale.
    """
    base = specialised_config(capability, scale)
    model = replace(
        base.model,
        network="mlp",
        original=False,
        segment_length=SEGMENT_LENGTHS[capability],
        width={"tiny": 64, "cpu": 512, "paper": 1024}[scale],
        encoder_layers=2,
        dropout=0.0,
        predict_variance=False,
    )
    returns = ("returns",) if capability == "rcbc" else ()
    common = replace(
        base,
        model=model,
        loss_on="wanted",
        modalities=("states", *returns, "actions"),
    )
    if scale != "paper":
        return common
    rates = replace(common.optimizer, learning_rate=2e-4, weight_decay=0.005, warmup_steps=5000)
    return replace(common, batch_size=4096, optimizer=rates)
