"""Damaged, mutated and odd input: `make torture` with few cases."""

from __future__ import annotations

import pytest
from torture.damage import damage
from torture.fuzz import fuzz
from torture.fuzz_kinds import KINDS
from torture.guided import guided
from torture.numbers import numbers
from torture.outcomes import check
from torture.unsafe import unsafe
from torture.warm import Warm

NEEDED = {"pyarrow": "parquet", "minari": "minari", "onnxscript": "export", "starlette": "serve"}
for library, extra in NEEDED.items():
    pytest.importorskip(library, reason=f"the extra `{extra}` is not installed")

CASES = 25


def test_only_errors_of_ours_soon_and_in_bounded_memory(warm: Warm) -> None:
    rows = fuzz(warm, CASES * len(KINDS))
    check(rows)
    assert all(row.cases == CASES for row in rows)
    refused = sum(row.outcomes["refused"] for row in rows)
    assert refused > CASES * len(KINDS) // 4  # the cases do harm


def test_inputs_that_are_guided_by_what_they_reach() -> None:
    pytest.importorskip("atheris", reason="atheris is not installed")
    rows = guided(200)
    check(rows)
    assert all(row.cases == 200 for row in rows)


def test_damage_is_noticed_or_without_effect(warm: Warm) -> None:
    rows = damage(warm, 60)
    check(rows)
    assert rows[0].outcomes["fell back, said so"]


def test_odd_numbers_are_trained_on_or_refused(warm: Warm) -> None:
    check(numbers(warm))


def test_nothing_in_a_file_is_executed(warm: Warm) -> None:
    check(unsafe(warm))
