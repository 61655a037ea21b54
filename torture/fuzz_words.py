"""What people type and ask: the command line, and the inputs of `predict`."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import random
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from mtm.cli import VERBS
from mtm.cli import main as mtm
from mtm.inference.queries import predict
from mtm.runs.run import Run, load_run
from torture.fuzz_data import Case
from torture.mutations import FOREIGN, odd_arrays
from torture.verbs import train_words


def predict_case(base: Path, folder: Path) -> Case:
    """Odd arrays to a run."""
    run: Run = load_run(base / "run")
    names = [m.name for m in run.modalities]

    def case(rng: random.Random) -> Any:
        drawn = list(odd_arrays(rng).values()) or [np.zeros(3)]
        chosen = rng.sample(names, rng.randint(0, len(names)))
        given = {name: rng.choice(drawn) for name in chosen}
        for name in chosen[: rng.randint(0, 2)]:
            shape = next(m.shape for m in run.modalities if m.name == name)
            given[name] = np.zeros((rng.choice([1, 4]), rng.choice([0, 1, 3, 9]), *shape))
        want = rng.choice([*names, "foreign", "", names, [], 7])
        answer = predict(run, given, want)  # type: ignore[arg-type]
        assert all(np.isfinite(np.asarray(v, float)).all() for v in answer.values()), "not finite"
        return "answered"

    return case


def command_line_case(base: Path, folder: Path) -> Case:
    """Words of every verb, in the wrong place; no run and no environment is there to be used."""
    os.chdir(folder)
    flags = {}
    for verb, (module, _) in VERBS.items():
        arguments = getattr(importlib.import_module(module), "Arguments", None)
        names = [f.name for f in fields(arguments)] if arguments is not None else []
        flags[verb] = [f"--{name.replace('_', '-')}" for name in names] + ["--help", "--x", "-v"]
    values = [
        *(str(v) for v in FOREIGN),
        "no/run",
        "builtin:nothing",
        str(base / "a.npz"),
        "=",
        "a=b",
    ]
    values += [
        "--",
        "-1",
        "\x1b[31m",
        "\u202e",
        "x" * 5000,
        str(base / "store"),
        "hub:",
        "d4rl:",
        ":",
    ]
    verbs = [v for v in VERBS if v not in ("demo", "reproduce", "train", "baseline", "collect")]

    def case(rng: random.Random) -> Any:
        if rng.random() < 0.3:
            words = train_words(base / "a.npz", folder / "no" / "run", 1)
            words[rng.randrange(1, len(words))] = rng.choice(values)
            words += [rng.choice(flags["train"]), rng.choice(values), "--stop-at", "0"]
        else:
            verb = rng.choice(verbs)
            words = verb.split() if rng.random() < 0.95 else [rng.choice(values)]
            for _ in range(rng.randint(0, 4)):
                words.append(rng.choice(flags[verb] if rng.random() < 0.5 else values))
            if verb in ("serve", "studio"):
                words.insert(len(verb.split()), "no/run")
        said = io.StringIO()
        try:
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                code = mtm(words)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 99
        text = said.getvalue()
        assert code in (0, 2), f"exit code {code} of {words}"
        assert "Traceback" not in text, f"{words}: {text[-300:]}"
        assert "\x1b[31m\x1b" not in text, f"{words} steers the terminal"
        return "done" if code == 0 else "refused"

    return case
