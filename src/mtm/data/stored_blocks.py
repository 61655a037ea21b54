"""The blocks of a store's records, each compared with its digest when it is first read.

A digest for every 16 KiB is written beside the records. Whatever reads steps for the first time
has their blocks compared before it: once for each block and process, at the speed of SHA-256.
Blocks are small, so that a random segment of a store larger than memory costs few more bytes than
its own pages.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mtm.core.errors import DataError
from mtm.data.modalities import BoolArray, IntArray

BLOCK = 1 << 14
"""Bytes that share a digest."""

DIGEST = 16
"""Bytes of a digest: the first of SHA-256."""


def digests_of(file: Path) -> bytes:
    """The digests of all blocks of a file, one after the other."""
    with file.open("rb") as stored:
        return b"".join(_digest(block) for block in iter(lambda: stored.read(BLOCK), b""))


class StoredBlocks:
    """What a store's records were when they were written.

    Args:
        file: Of the records, told in errors.
        records: All of them, (N,), mapped.
        digests: Of their blocks, (blocks, `DIGEST`) bytes; None for a store that has none.
        offsets: Where episodes begin, (E + 1,), to tell the place of damage.
    """

    def __init__(
        self,
        file: Path,
        records: NDArray[Any],
        digests: NDArray[np.uint8] | None,
        offsets: IntArray,
    ) -> None:
        self.file, self._offsets, self._digests = file, offsets, digests
        self._bytes = records.view(np.uint8)
        self._itemsize = records.itemsize
        count = 0 if digests is None else len(digests)
        self._unread: BoolArray = np.ones(count, bool)
        self._left = count

    @property
    def have_digests(self) -> bool:
        """Whether the store was written with digests."""
        return self._digests is not None

    def check(self, first: IntArray, last: IntArray) -> None:
        """Compare the blocks that are about to be read, where they were not before.

        Args:
            first: First steps of runs of steps, (B,).
            last: Their last ones, (B,).

        Raises:
            DataError: A block is not what was written; the message says where.
        """
        if not self._left:
            return
        low = first * self._itemsize // BLOCK
        high = (last * self._itemsize + self._itemsize - 1) // BLOCK
        wide = low[:, None] + np.arange(int((high - low).max(initial=0)) + 1)
        blocks = np.minimum(wide, high[:, None]).reshape(-1)
        for block in np.unique(blocks[self._unread[blocks]]):
            if not self._is_sound(int(block)):
                raise DataError(self._describe(int(block), int(block)))

    def check_all(self) -> None:
        """Compare all blocks that were not read before.

        Raises:
            DataError: Listing every place that is not what was written.
        """
        if faults := list(self.faults()):
            raise DataError(*faults)

    def faults(self) -> Iterator[str]:
        """A line for each run of blocks that are not what was written."""
        damaged = [b for b in np.flatnonzero(self._unread).tolist() if not self._is_sound(b)]
        runs: list[list[int]] = []
        for block in damaged:
            if runs and runs[-1][-1] == block - 1:
                runs[-1].append(block)
            else:
                runs.append([block])
        for run in runs:
            yield self._describe(run[0], run[-1])

    def _is_sound(self, block: int) -> bool:
        assert self._digests is not None  # without digests, no block is unread
        data = self._bytes[block * BLOCK : (block + 1) * BLOCK]
        if _digest(data.data) != self._digests[block].tobytes():
            return False
        self._unread[block] = False
        self._left -= 1
        return True

    def _describe(self, first: int, last: int) -> str:
        start, stop = first * BLOCK, min((last + 1) * BLOCK, len(self._bytes))
        steps = start // self._itemsize, (stop - 1) // self._itemsize
        episodes = np.searchsorted(self._offsets, steps, side="right") - 1
        return (
            f"{self.file}: bytes {start:,} to {stop - 1:,} are not what was written (steps "
            f"{steps[0]:,} to {steps[1]:,}, of episodes {episodes[0]:,} to {episodes[1]:,}). Copy "
            "the store again from where it is sound, or convert again."
        )


def _digest(data: Any) -> bytes:
    return hashlib.sha256(data).digest()[:DIGEST]
