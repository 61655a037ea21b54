"""The original's step and loop, in a process of its own: `python -m benchmarks.reference_process`.

Its model, masks, loss, data set and `train_one_batch` are imported from a checkout. Libraries that
its modules import but these parts do not use are replaced by empty stand-ins where they are not
installed, in this process only.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import torch

from benchmarks.timing import take_turn
from mtm.data.formats import builtin

NOT_NEEDED = (
    "wandb",
    "hydra",
    "omegaconf",
    "git",
    "cloudpickle",
    "termcolor",
    "tqdm",
    "d4rl",
    "gym",
)
"""What the original imports for logging, settings and simulators."""

VISIBLE = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 1.0)
"""Its setting `mask_ratios`: the shares that stay visible."""


def main() -> None:
    """Take a turn of the loop whenever `seconds_in_turns` wants one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path)
    parser.add_argument("--width", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--dropout", type=float, required=True)
    parser.add_argument("--workers", type=int, default=0, help="processes of its data loader")
    arguments = parser.parse_args()
    make_importable(arguments.path)
    warnings.simplefilter("ignore")  # of PyTorch, about the way the original uses it
    np.random.seed(0)  # noqa: NPY002  (its masks come from there)
    take_step, data, mask = _original(arguments)
    batches = _endless(data, arguments.batch, arguments.workers)
    step = 0.0
    while True:
        take_turn(step)
        batch, masks = next(batches), mask()
        began = time.perf_counter()
        take_step(batch, masks)
        step = time.perf_counter() - began


def make_importable(path: Path) -> None:
    """Let `import research.mtm...` find a checkout of the original, in this process."""
    sys.path.insert(0, str(path))
    missing = [name for name in NOT_NEEDED if importlib.util.find_spec(name) is None]
    for name in (*missing, "research.jaxrl.utils"):  # the last one wraps simulators
        sys.modules[name] = MagicMock()


def _original(
    arguments: argparse.Namespace,
) -> tuple[Callable[..., object], Any, Callable[[], Any]]:
    """Its training step, its data set and its mask function, for this project's Hopper data."""
    from research.mtm.datasets.sequence_dataset import SequenceDataset
    from research.mtm.masks import create_random_autoregressize_mask
    from research.mtm.models.mtm_model import MTM, MTMConfig
    from research.mtm.tokenizers.base import TokenizerManager
    from research.mtm.tokenizers.continuous import ContinuousTokenizer
    from research.mtm.train import train_one_batch

    T, names = 4, ("states", "returns", "actions")
    data = SequenceDataset(_hopper(), discount=1.5, sequence_length=T, name=f"bench-{os.getpid()}")
    tokenizers = {name: ContinuousTokenizer.create(name, data) for name in names}
    Path(f"/tmp/d4rl/d4rl_statistics_bench-{os.getpid()}_avg.pkl").unlink(missing_ok=True)
    manager = TokenizerManager(tokenizers)
    shapes = {name: (1, data[0][name].shape[-1]) for name in names}
    config = MTMConfig(
        n_embd=arguments.width,
        n_head=4,
        n_enc_layer=2,
        n_dec_layer=1,
        dropout=arguments.dropout,
        norm="none",
    )
    model = config.create(shapes, T).train()
    optimizer = MTM.configure_optimizers(model, 1e-4, 0.005, (0.9, 0.999))
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(step / 40_000, 1.0))

    def take_step(batch: dict[str, torch.Tensor], masks: dict[str, torch.Tensor]) -> object:
        discrete = dict.fromkeys(names, False)
        return train_one_batch(model, optimizer, scheduler, manager, discrete, batch, masks)

    def mask() -> dict[str, torch.Tensor]:
        return create_random_autoregressize_mask(shapes, VISIBLE, T, "cpu")

    return take_step, data, mask


def _hopper() -> SimpleNamespace:
    """The bundled Hopper data in the form that its data set class takes."""
    hopper = builtin.hopper()
    last = np.zeros(hopper.num_steps, np.float32)
    last[hopper.ends - 1] = 1
    return SimpleNamespace(
        env=None,
        observations=hopper.arrays["states"],
        actions=hopper.arrays["actions"],
        rewards=hopper.arrays["rewards"],
        dones_float=last,
    )


def _endless(data: Any, batch_size: int, workers: int) -> Iterator[dict[str, torch.Tensor]]:
    """Its data loader, begun again at the end of each pass."""
    loader = torch.utils.data.DataLoader(
        data,
        batch_size=batch_size,
        num_workers=workers,
        sampler=torch.utils.data.RandomSampler(data),
    )
    return itertools.chain.from_iterable(itertools.repeat(loader))


if __name__ == "__main__":
    main()
