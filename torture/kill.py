"""SIGKILL at random moments of every verb that writes, and power cuts.

Half of the kills come at a random time, half before a random thing that the verb does to files:
there are few of these, and most of what can go wrong is next to them. Then the same command is
given again, some time without a kill, and what comes out is compared.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from torture.outcomes import Row, timed
from torture.verbs import Material, Verb, serving, verbs
from torture.warm import Ended, Warm
from torture.whole import half_written, strays

KILLS = 50
"""Of every verb."""

IN_A_ROW = 5
"""Kills in one folder, at most, before the verb may come to its end."""

TRIES = 4
"""A verb may come to its end before its moment; so many times as kills are asked for."""


@contextmanager
def material(warm: Warm, only: Collection[str] = ()) -> Iterator[dict[str, Verb]]:
    """The verbs, or some of them, with what they work on."""
    with tempfile.TemporaryDirectory(prefix="mtm-kill-") as name, serving() as url:
        known = verbs(Material.make(Path(name), warm), url)
        yield {verb: known[verb] for verb in only or known}


def kill(
    warm: Warm,
    kills: int = KILLS,
    only: Collection[str] = (),
    say: Callable[[Row], None] = lambda row: None,
) -> list[Row]:
    """Kill every verb so many times; a row for each verb, and one for what it renamed."""
    rows = []
    with material(warm, only) as known:
        for name, verb in known.items():
            killed, flushed = Row("kill", name), Row("power cut", name)
            with timed(killed):
                kill_verb(warm, verb, kills, killed, flushed)
            for row in (killed, flushed):
                say(row)
                rows.append(row)
    return rows


def kill_verb(warm: Warm, verb: Verb, kills: int, killed: Row, flushed: Row) -> None:
    """Kill one verb; also watch a sitting of it that nobody kills."""
    rng = random.Random(verb.name)
    with tempfile.TemporaryDirectory(prefix="mtm-kill-") as name:
        folder = Path(name)
        verb.before(folder)
        whole = warm.run(*verb.job(folder), watch=True)
        if whole.code:
            killed.broke(f"without a kill: exit code {whole.code}: {whole.said[-500:]}")
            return
        wanted = verb.result(folder)
        for fault in whole.unflushed:
            flushed.broke(fault)
        if not whole.unflushed:
            flushed.held("flushed")
    for _ in range(TRIES * kills):
        left = kills - killed.cases
        if left <= 0:
            return
        with tempfile.TemporaryDirectory(prefix="mtm-kill-") as name:
            _in_one_folder(warm, verb, Path(name), min(left, IN_A_ROW), whole, wanted, rng, killed)


def _in_one_folder(
    warm: Warm,
    verb: Verb,
    folder: Path,
    kills: int,
    whole: Ended,
    wanted: object,
    rng: random.Random,
    row: Row,
) -> None:
    """Kill a verb some times in a folder, let it come to its end, and compare."""
    moments = []
    for _ in range(kills):
        verb.before(folder)
        if rng.random() < 0.5:
            moment = {"after": rng.uniform(0, whole.seconds)}
        else:
            moment = {"event": rng.randint(1, max(whole.events, 1))}
        ended = warm.run(*verb.job(folder), **moment)
        if not ended.killed:
            if ended.code or ended.is_foreign:
                row.broke(f"after {moments}: exit code {ended.code}: {ended.said[-500:]}")
                return
            continue
        moments.append(moment)
        faults = [*half_written(folder), *verb.lost(folder)]
        if faults:
            row.broke(f"killed at {moments}: {faults}")
            return
    if not moments:
        return
    verb.before(folder)
    last = warm.run(*verb.job(folder))
    faults = [f"exit code {last.code}: {last.said[-500:]}"] if last.code else []
    faults += half_written(folder)
    faults += [f"{stray} was left behind" for stray in strays(folder)]
    if not last.code and verb.result(folder) != wanted:
        faults.append("the result is not that of a sitting without a kill")
    for i in range(len(moments)):
        if faults and i == 0:
            row.broke(f"killed at {moments}: {faults}")
        else:
            row.held("went on, same result")
