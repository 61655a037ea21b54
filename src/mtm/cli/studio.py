"""`mtm studio`: click tokens in a browser, see the model answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro


@dataclass(frozen=True)
class Arguments:
    """Serve a page on this machine on which one chooses what is visible and sees what a run says.

    It ends with Ctrl-C.
    """

    runs: tyro.conf.Positional[tuple[Path, ...]] = ()
    """Run directories; those in runs/ if none is given."""
    data: str | None = None
    """Data to look at, besides those that the runs were trained on."""
    env: str | None = None
    """Environment to act in; needed where the data name none, or one as MODULE:ID. A run whose data
    belong to another keeps to that."""
    port: int | None = None
    """Port to listen on; 0 takes any free one. If not given 8377, or a free one if it is taken."""
    host: str = "127.0.0.1"
    """Address to listen on. Any that others can reach asks for a token, which is printed."""
    browser: bool = True
    """Open the page in the browser."""


def main(words: Sequence[str]) -> None:
    """Serve until Ctrl-C."""
    arguments = tyro.cli(Arguments, args=list(words), prog="mtm studio")
    import webbrowser

    from mtm.evaluation.studio.serving import Serving

    serving = Serving(
        arguments.runs,
        arguments.data,
        env_id=arguments.env,
        host=arguments.host,
        port=arguments.port,
    )
    try:
        with serving:
            print(f"The studio: {serving.address}\nCtrl-C ends it.", flush=True)
            if arguments.browser:
                webbrowser.open(serving.address)
            serving.wait()
    except KeyboardInterrupt:
        print()
