"""A list of episodes as flat arrays over all of their steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mtm.core.errors import DataError
from mtm.data.modalities import BoolArray, IntArray
from mtm.data.validate_arrays import as_array


def flatten(
    episodes: Sequence[Mapping[str, ArrayLike]],
) -> tuple[dict[str, NDArray[Any]], IntArray, dict[str, BoolArray]]:
    """Episodes one after the other.

    Args:
        episodes: Dicts of (length, *shape) arrays. One may lack a modality that others have, and
            an array may be masked (`numpy.ma`): the modality is absent there.

    Returns:
        Values by modality, (N, *shape); offsets, (E + 1,); presence by modality, (N,).

    Raises:
        DataError: There are none, one has no steps, or arrays do not go together.
    """
    if not episodes:
        raise DataError("the data set is empty: it has no episodes.")
    parts = [{name: as_array(name, v) for name, v in e.items()} for e in episodes]
    lengths = [_length(i, part) for i, part in enumerate(parts)]
    arrays, present = {}, {}
    for name in dict.fromkeys(name for part in parts for name in part):
        example = next(part[name] for part in parts if name in part)
        values, known = [], []
        for i, (part, length) in enumerate(zip(parts, lengths, strict=True)):
            here = part.get(name)
            if here is None:
                here = np.zeros((length, *example.shape[1:]), example.dtype)
            elif here.shape[1:] != example.shape[1:]:
                raise DataError(
                    f"modality {name!r} has shape {here.shape[1:]} in episode {i}, but "
                    f"{example.shape[1:]} in an earlier one; all episodes must agree."
                )
            values.append(np.asarray(here))
            known.append(unmasked(here) & (name in part))
        arrays[name], present[name] = np.concatenate(values), np.concatenate(known)
    return arrays, np.append(0, np.cumsum(lengths)), present


def unmasked(values: NDArray[Any]) -> BoolArray:
    """The steps of which nothing is masked, (N,); all if there is no mask."""
    if not isinstance(values, np.ma.MaskedArray):
        return np.ones(len(values), bool)
    mask = np.ma.getmaskarray(values).reshape(len(values), -1)
    whole: BoolArray = ~np.any(mask, axis=1)
    return whole


def _length(index: int, episode: Mapping[str, NDArray[Any]]) -> int:
    """The steps of an episode."""
    lengths = {name: len(array) for name, array in episode.items()}
    if not lengths or 0 in lengths.values():
        raise DataError(f"episode {index} has length 0; every episode needs at least one step.")
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise DataError(f"episode {index}: modalities of different length: {listed}.")
    return next(iter(lengths.values()))
