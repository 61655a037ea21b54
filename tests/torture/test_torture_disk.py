"""Bad disks, and two at once: `make torture` with few cases, of a few verbs."""

from __future__ import annotations

from torture.disk import disk
from torture.outcomes import check
from torture.together import together
from torture.warm import Warm


def test_a_disk_that_is_full_read_only_or_stops_in_the_middle(warm: Warm) -> None:
    check(disk(warm, 2, ("train", "convert", "relabel", "pack")))


def test_two_at_once_are_one_refusal_or_both_correct(warm: Warm) -> None:
    check(together(warm, 2, ("train", "convert", "eval --json")))
