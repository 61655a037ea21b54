"""A pretrained encoder in Stable-Baselines3: SAC whose networks read encodings.

    python examples/stable_baselines3_sac.py --timesteps 20000
    python examples/stable_baselines3_sac.py --run runs/hopper --trainable

Without --run a small model is pretrained first on the bundled recording of Hopper.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

import gymnasium
from stable_baselines3 import SAC
from stable_baselines3.common.evaluation import evaluate_policy

import mtm
from mtm.inference.plugins.sb3 import MTMFeatures


def main() -> None:
    """Train an agent and print its return."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="Hopper-v5")
    parser.add_argument("--run", type=Path, help="a run pretrained on data of the environment")
    parser.add_argument("--trainable", action="store_true", help="let SAC train the encoder too")
    parser.add_argument("--pretraining-steps", type=int, default=300)
    parser.add_argument("--timesteps", type=int, default=20_000)
    parser.add_argument("--learning-starts", type=int, default=1000)
    arguments = parser.parse_args()

    agent = SAC(
        "MlpPolicy",
        gymnasium.make(arguments.env),
        learning_starts=arguments.learning_starts,
        seed=0,
        policy_kwargs={
            # Actor, critic and target critic each make an extractor of their own.
            "features_extractor_class": MTMFeatures,
            "features_extractor_kwargs": {
                "run": arguments.run or pretrain(arguments.pretraining_steps),
                "trainable": arguments.trainable,
                "with_state": True,
            },
        },
    )
    agent.learn(arguments.timesteps)
    mean, std = evaluate_policy(agent, gymnasium.make(arguments.env), 3, warn=False)
    print(f"return {mean:.1f} +- {std:.1f}")


def pretrain(steps: int) -> Path:
    """A small model of the bundled recording."""
    folder = Path(tempfile.mkdtemp()) / "run"
    config = replace(mtm.preset("tiny"), steps=steps, modalities=("states", "actions"))
    return mtm.train("builtin:hopper", config, folder, silent=True).path


if __name__ == "__main__":
    main()
