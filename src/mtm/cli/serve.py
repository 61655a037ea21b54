"""`mtm serve`: a run over HTTP."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from mtm.cli.asked_run import AskedRun
from mtm.cli.parsing import parse
from mtm.deploy.serve_limits import Limits

TOKEN = "MTM_SERVE_TOKEN"
"""Variable of the environment: unlike words of a command, other users do not see it."""


@dataclass(frozen=True, kw_only=True)
class Arguments(AskedRun):
    """Answer questions and act over HTTP, JSON in and out, for many clients at once.

    Only this machine reaches it, unless --host says otherwise; then clients need a token, which is
    that of the variable MTM_SERVE_TOKEN, or is made and printed. Ctrl-C or SIGTERM end it when what
    is under way is answered.
    """

    host: str = "127.0.0.1"
    """The address to bind to; 0.0.0.0 for all of this machine."""
    port: int = 8000
    """0 takes a free one."""
    limits: Limits = field(default_factory=Limits)
    """What clients may ask for."""


def main(words: Sequence[str]) -> None:
    """Serve until stopped."""
    arguments = parse(Arguments, words, "mtm serve")
    from mtm.deploy.serve import serve

    serve(
        arguments.load(),
        arguments.host,
        arguments.port,
        token=os.environ.get(TOKEN),
        limits=arguments.limits,
        say=functools.partial(print, flush=True),
    )
