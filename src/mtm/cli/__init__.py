"""The command line: thin verbs, each in a file of its own, loaded when called."""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from collections.abc import Sequence
from typing import TextIO

from mtm import __version__
from mtm.core.errors import MTMError, unknown
from mtm.core.escaping import shown

VERBS = {
    "train": ("mtm.cli.train", "train a model on logged trajectories"),
    "eval": ("mtm.cli.eval", "measure every capability of a run"),
    "rollout": ("mtm.cli.rollout", "let a run act in its environment"),
    "predict": ("mtm.cli.predict", "given these modalities of a file, what are those?"),
    "relabel": ("mtm.cli.relabel", "fill what data lack, and say how far the labels may be off"),
    "export": ("mtm.cli.export", "write a run's capabilities as files that need no PyTorch"),
    "doctor": ("mtm.cli.doctor", "find faulty episodes of a data set"),
    "report": ("mtm.cli.report", "write an HTML page of a run"),
    "studio": ("mtm.cli.studio", "click tokens in a browser, see the model answer"),
    "pack": ("mtm.cli.pack", "a run as one file, for others to load"),
    "push": ("mtm.cli.push", "share a run on a hub; private unless you say otherwise"),
    "serve": ("mtm.cli.serve", "answer questions and act over HTTP, for many clients at once"),
    "demo": ("mtm.cli.demo", "one model, seven uses: train, measure, report"),
    "collect": ("mtm.cli.collect", "make data of your own: train an agent, or explore"),
    "reproduce": ("mtm.cli.reproduce", "the paper's tables and figures"),
    "baseline": ("mtm.cli.baseline", "train an agent to compare with: bc10, dt, tt, iql, ..."),
    "data info": ("mtm.cli.data_info", "what a data set holds"),
    "data validate": ("mtm.cli.data_validate", "every fault of a data set, with its place"),
    "data convert": ("mtm.cli.data_convert", "write a data set as a store, or in another format"),
    "data align": ("mtm.cli.data_align", "bring sensors of several rates to one clock"),
    "masks list": ("mtm.cli.masks_list", "the masks, a line each"),
    "masks show": ("mtm.cli.masks_show", "draw a mask as a grid"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `mtm VERB ...`; returns the exit code.

    0; 2 for an error of the user's to cure; 130 for what Ctrl-C or SIGTERM ended early, also where
    it was saved before.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help"):
        print(_help())
        return 0
    if words[0] == "--version":
        print(__version__)
        return 0
    for length in (2, 1):
        verb = " ".join(words[:length])
        if verb in VERBS:
            return _call(verb, words[length:])
    firsts = {name.split()[0] for name in VERBS}
    seconds = [name for name in VERBS if name.startswith(f"{words[0]} ")]
    if (words[0] in firsts and len(words) == 1) or words[1:2] in (["-h"], ["--help"]):
        print(_help(seconds or None))
        return 0
    typed = " ".join(words[:2]) if seconds else words[0]
    print(f"error: {shown(unknown('command', typed, seconds or VERBS))}", file=sys.stderr)
    return 2


def _call(verb: str, arguments: Sequence[str]) -> int:
    module = importlib.import_module(VERBS[verb][0])
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _print_warning
            module.main(arguments)
    except MTMError as error:
        print(f"error: {shown(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output, such as `head`, has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        if error.filename is None:  # of no file that was named
            raise
        print(f"error: {shown(f'{error.filename}: {error.strerror}')}.", file=sys.stderr)
        return 2
    return 0


def _print_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """One line for a person, without the place in the code."""
    print(f"warning: {shown(message)}", file=sys.stderr)


def _help(verbs: Sequence[str] | None = None) -> str:
    wide = max(len(name) for name in VERBS)
    rows = [f"  mtm {n:<{wide}}  {VERBS[n][1]}" for n in verbs or VERBS]
    return "\n".join(
        [
            "mtm: masked trajectory models. Choose what is visible, get the model you need.",
            "",
            *rows,
            "",
            "mtm VERB --help says more. mtm --version prints the version.",
        ]
    )
