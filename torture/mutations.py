"""Seeded mutations: of plain data, of bytes, and arrays that no sane person writes."""

from __future__ import annotations

import copy
import io
import random
import struct
import zipfile
from typing import Any

import numpy as np
from numpy.typing import NDArray

FOREIGN = (
    *(None, True, -1, 0, 3, 10**24, 1e308, float("inf"), float("-inf"), float("nan"), 0.5),
    *("", "x", "NaN", [], {}, [None], {"a": None}, [[1]], [float("nan")]),
)
"""Values that nobody expects."""

NAMES = (
    *(
        "observations",
        "states",
        "actions",
        "rewards",
        "terminals",
        "timeouts",
        "returns",
        "offsets",
    ),
    *("states_present", "actions_present", "episode", "infos/goal_achieved", "roles", "env_id"),
    *("next_observations", "observation", "action", "reward", "discount", "physics", "x", ""),
)
"""Of arrays, with a meaning to some reader."""

TYPES = (
    *("f2", "f4", "f8", "f8", "i1", "i2", "i4", "i8", "u1", "u8", "?", "U3", "S2", "c8", "M8[s]"),
)


def mutated(plain: Any, rng: random.Random) -> Any:
    """Plain data with one to three values replaced, removed or added."""
    plain = copy.deepcopy(plain)
    for _ in range(rng.randint(1, 3)):
        place: Any = plain
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                break
            key = rng.choice(keys)
            if isinstance(place[key], dict | list) and place[key] and rng.random() < 0.8:
                place = place[key]
                continue
            action = rng.random()
            if action < 0.7:
                place[key] = copy.deepcopy(rng.choice(FOREIGN))  # which the next round may change
            elif action < 0.85:
                del place[key]
            elif isinstance(place, dict):
                place[rng.choice(["foreign", "name", "width"])] = copy.deepcopy(rng.choice(FOREIGN))
            break
    return plain


def spoiled(content: bytes, rng: random.Random) -> bytes:
    """Bytes with some changed, cut off, or repeated."""
    data = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        if not data:
            break
        place = rng.randrange(len(data))
        action = rng.random()
        if action < 0.6:
            data[place] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
        elif action < 0.75:
            data[place : place + rng.randint(1, 16)] = rng.randbytes(8)
        elif action < 0.9:  # a number, such as a length
            large = rng.choice([0, 1, 2**31 - 1, 2**32 - 1, 2**63 - 1, 10**12])
            data[place : place + 8] = struct.pack("<Q", large)
        else:
            del data[place:]
            data += b"\0"
    return bytes(data)


def spoiled_zip(content: bytes, rng: random.Random) -> bytes:
    """A zip, one of whose members is spoiled; its checksum is right, so that it is read."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as source, zipfile.ZipFile(made, "w") as target:
        chosen = rng.choice(source.namelist())
        for name in source.namelist():
            data = source.read(name)
            target.writestr(name, spoiled(data, rng) if name == chosen else data)
    return made.getvalue()


def odd_arrays(rng: random.Random) -> dict[str, NDArray[Any]]:
    """Arrays of odd types, shapes and values, under names that mean something to readers."""
    drawn = np.random.default_rng(rng.randrange(2**32))
    rows = rng.choice([0, 1, 2, 12, 12, 12, 12, 12])
    sane: dict[str, NDArray[Any]] = {}
    if rng.random() < 0.8:
        rows = 12
        sane = {"observations": drawn.normal(size=(12, 3)), "actions": drawn.normal(size=(12, 2))}
        sane |= {"rewards": drawn.normal(size=12), "terminals": np.arange(12) % 4 == 3}
    names = rng.sample(NAMES[:-1], rng.randint(0, 2) if sane else rng.randint(0, 6))
    return sane | {name: _odd_array(rng, drawn, rows) for name in names}


def _odd_array(rng: random.Random, drawn: np.random.Generator, rows: int) -> NDArray[Any]:
    first = rows if rng.random() < 0.9 else rng.choice([0, 1, rows + 1])
    shape = rng.choice([(first,), (first,), (first, 3), (first, 1), (first, 2, 2), (first, 0), ()])
    values = np.asarray(drawn.normal(size=shape) * rng.choice([0, 1, 1, 3, 1e-12, 1e30, 1e300]))
    if values.size and rng.random() < 0.2:
        flat = values.reshape(-1)
        flat[rng.randrange(flat.size)] = rng.choice([np.nan, np.inf, -np.inf])
        values = flat.reshape(shape)
    with np.errstate(all="ignore"):
        return values.astype(rng.choice(TYPES))
