"""A pretrained encoder in TorchRL: TD3's loss on logged data, its networks reading encodings.

    python examples/torchrl_td3.py
    python examples/torchrl_td3.py --data exorl:walk:walker --run runs/walker --trainable

Without --run a small model is pretrained first. No episode ends in a terminal state here; the whole
thing, with evaluation and caching, is `mtm.research.baselines.td3`.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule, TensorDictSequential
from torch import nn
from torchrl.objectives import SoftUpdate, TD3Loss, ValueEstimators

import mtm
from mtm.inference.plugins.tensordict import state_action_encoder, state_encoder


def main() -> None:
    """Take some updates and print the losses."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="builtin:point-mass")
    parser.add_argument("--run", type=Path, help="a run pretrained on these data")
    parser.add_argument("--trainable", action="store_true", help="train the encoders too")
    parser.add_argument("--pretraining-steps", type=int, default=60)
    parser.add_argument("--updates", type=int, default=200)
    arguments = parser.parse_args()

    torch.manual_seed(0)
    data = mtm.load_dataset(arguments.data)
    run = arguments.run or pretrain(data, arguments.pretraining_steps)
    size = data.modality("actions").size

    # The actor reads encodings of states, the critics joint encodings of states and actions.
    observe = state_encoder(run, trainable=arguments.trainable)
    choose = nn.Sequential(network(observe.module.features, size), nn.Tanh())
    actor = TensorDictSequential(observe, TensorDictModule(choose, ["latent"], ["action"]))
    # Two critics are given as a list: of a single one TorchRL would draw new weights for the
    # second, and with them new ones for a trainable encoder. Each has a head of its own, since of
    # two that are alike the lower value is that of either.
    critics = [critic(run, arguments.trainable) for _ in range(2)]
    loss = TD3Loss(actor, critics, bounds=(-torch.ones(size), torch.ones(size)))
    loss.make_value_estimator(ValueEstimators.TD0, gamma=0.99)
    targets = SoftUpdate(loss, tau=0.01)  # target networks hold encoders of their own
    optimizer = torch.optim.Adam([p for p in loss.parameters() if p.requires_grad], lr=3e-4)

    for _ in range(arguments.updates):
        losses = loss(batch(data, 256))
        optimizer.zero_grad()
        (losses["loss_actor"] + losses["loss_qvalue"]).backward()
        optimizer.step()
        targets.step()
    print(f"critics {losses['loss_qvalue'].item():.4f}, actor {losses['loss_actor'].item():.4f}")


def critic(run: Path | mtm.Run, trainable: bool) -> TensorDictSequential:
    """What values a state and an action by their joint encoding."""
    judge = state_action_encoder(run, trainable=trainable)
    value = network(judge.module.features, 1)
    return TensorDictSequential(judge, TensorDictModule(value, ["latent"], ["state_action_value"]))


def network(inputs: int, outputs: int) -> nn.Sequential:
    """A hidden layer."""
    return nn.Sequential(nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, outputs))


def batch(data: mtm.TrajectoryDataset, size: int) -> TensorDict:
    """Transitions drawn at random, as TorchRL lays them out."""
    states, actions, rewards = (
        torch.from_numpy(data.arrays[name]) for name in ("states", "actions", "rewards")
    )
    followed = torch.ones(len(states), dtype=torch.bool)
    followed[torch.from_numpy(data.ends - 1)] = False
    rows = followed.nonzero().squeeze(1)
    now = rows[torch.randint(len(rows), (size,))]
    never = torch.zeros(size, 1, dtype=torch.bool)
    after = {
        "observation": states[now + 1],
        "reward": rewards[now].unsqueeze(1),
        "done": never,
        "terminated": never,
    }
    return TensorDict({"observation": states[now], "action": actions[now], "next": after}, [size])


def pretrain(data: mtm.TrajectoryDataset, steps: int) -> mtm.Run:
    """A small model of the data."""
    folder = Path(tempfile.mkdtemp()) / "run"
    config = replace(mtm.preset("tiny"), steps=steps, modalities=("states", "actions"))
    return mtm.train(data, config, folder, silent=True)


if __name__ == "__main__":
    main()
