"""A pretrained encoder in plain PyTorch: predict the return-to-go of a state from its encoding.

    python examples/plain_torch.py
    python examples/plain_torch.py --run runs/hopper --trainable

Without --run a small model is pretrained first.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

import mtm
from mtm.data.returns import add_returns
from mtm.inference.encoders import StateEncoder


def main() -> None:
    """Train a small head on the encoder and print its error."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="builtin:point-mass")
    parser.add_argument("--run", type=Path, help="a pretrained run of the same data")
    parser.add_argument("--trainable", action="store_true", help="train the encoder too")
    parser.add_argument("--pretraining-steps", type=int, default=60)
    parser.add_argument("--steps", type=int, default=500)
    arguments = parser.parse_args()

    data = mtm.load_dataset(arguments.data)
    run = arguments.run or pretrain(data, arguments.pretraining_steps)
    states = torch.from_numpy(data.arrays["states"])
    returns = torch.from_numpy(add_returns(data, mtm.TrainConfig().returns).arrays["returns"])

    # An encoder is a module like any other: raw states in, features out. Frozen weights are
    # buffers, so `parameters()` lists only what is to be trained.
    encoder = StateEncoder(run, trainable=arguments.trainable, with_state=True)
    model = nn.Sequential(encoder, nn.Linear(encoder.features, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    torch.manual_seed(0)
    for _ in range(arguments.steps):
        rows = torch.randint(len(states), (256,))
        loss = (model(states[rows]).squeeze(1) - returns[rows].reshape(-1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"error {loss.item():.4f}, variance of the returns {returns.var().item():.4f}")


def pretrain(data: mtm.TrajectoryDataset, steps: int) -> mtm.Run:
    """A small model of the data."""
    folder = Path(tempfile.mkdtemp()) / "run"
    config = replace(mtm.preset("tiny"), steps=steps, modalities=("states", "actions"))
    return mtm.train(data, config, folder, silent=True)


if __name__ == "__main__":
    main()
