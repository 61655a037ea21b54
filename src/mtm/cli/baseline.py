"""`mtm baseline`: train one of the agents that the masked model is compared with."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from mtm.cli.interruption import tell_if_stopped
from mtm.cli.parsing import parse as parse_words
from mtm.core.errors import ConfigError
from mtm.core.escaping import say
from mtm.research.baselines.settings import AGENTS, AgentConfig, agent_config


@dataclass(frozen=True)
class Arguments:
    """Train an agent to compare with; `mtm eval OUT` then lets it act.

    The defaults below are those of the agent at the chosen scale.
    """

    name: tyro.conf.Positional[str]
    """bc10, dt, tt, iql, cql, td3_bc, rebrac or mopo."""
    data: str
    """A file, a directory, or PREFIX:NAME, with rewards."""
    out: Path
    """Where to leave the agent."""
    scale: str = "cpu"
    """tiny (seconds), cpu (minutes) or paper (as published)."""
    resume: bool = False
    """Go on with the agent in --out; start one if there is none."""
    overwrite: bool = False
    """Replace what is in --out."""
    stop_at: int | None = None
    """End this sitting at that step and save; --resume goes on."""
    device: str = "cpu"
    """Where to compute: cpu, cuda, cuda:1, mps."""
    settings: Annotated[AgentConfig, tyro.conf.arg(name="")] = field(default_factory=AgentConfig)


def main(words: Sequence[str]) -> None:
    """Parse, train, and say where the agent is."""
    arguments = parse(words)
    from mtm.research.baselines import train_agent

    agent = train_agent(
        arguments.name,
        arguments.data,
        arguments.settings,
        arguments.out,
        resume=arguments.resume,
        overwrite=arguments.overwrite,
        stop_at=arguments.stop_at,
        device=arguments.device,
    )
    say(f"{agent.path}: {agent.name}, step {agent.step:,}. mtm eval {agent.path} lets it act.")
    tell_if_stopped(agent.step, arguments.settings.steps, arguments.stop_at)


def parse(words: Sequence[str]) -> Arguments:
    """The command line, over the settings of the agent at the chosen scale.

    Raises:
        ConfigError: There is no such agent or scale, or a setting is wrong.
    """
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--scale", default="cpu")
    chosen, _ = first.parse_known_args(words)
    named = words[0] if words and not words[0].startswith("-") else AGENTS[0]
    settings = agent_config(named, chosen.scale)
    default = Arguments(tyro.MISSING, tyro.MISSING, tyro.MISSING, settings=settings)
    arguments = parse_words(Arguments, words, "mtm baseline", default)
    if arguments.name != named:  # the settings would be those of another agent
        raise ConfigError(f"say the agent first: mtm baseline {arguments.name} --data ...")
    return arguments
