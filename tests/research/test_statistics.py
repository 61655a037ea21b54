"""Statistics against hand computations and scipy, and verdicts that can say no."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mtm.research import statistics
from mtm.research.experiments.over_seeds import Number
from mtm.research.experiments.verdicts import (
    Case,
    Claim,
    Comparison,
    claim,
    compare,
    difference_text,
)
from mtm.research.statistics import (
    Estimate,
    interquartile_mean,
    interquartile_mean_of,
    mean_difference,
    performance_profile,
    probability_of_improvement,
    students_t,
)

scipy_stats = pytest.importorskip("scipy.stats", reason="scipy, of the extra `sim`, is missing")


@pytest.mark.parametrize("count", [1, 3, 4, 7, 8, 30])
def test_the_interquartile_mean_is_scipys_trimmed_mean(count: int) -> None:
    values = np.random.default_rng(count).normal(size=count)
    assert interquartile_mean(values) == pytest.approx(scipy_stats.trim_mean(values, 0.25))


def test_the_interquartile_mean_by_hand() -> None:
    assert interquartile_mean([100.0, 1.0, 2.0, 3.0, 4.0, -50.0, 5.0, 6.0]) == 3.5


def test_the_bootstrap_interval_is_near_scipys() -> None:
    values = np.random.default_rng(0).normal(50, 10, size=20)
    found = interquartile_mean_of({"a": list(values)})
    theirs = scipy_stats.bootstrap(
        *((values,), lambda x, axis: scipy_stats.trim_mean(x, 0.25, axis=axis)),
        method="percentile",
        rng=np.random.default_rng(1),
    ).confidence_interval
    assert found.interval is not None
    assert found.interval == pytest.approx((theirs.low, theirs.high), abs=1.0)


def test_the_bootstrap_keeps_to_the_sets() -> None:
    """Sets far apart do not widen the interval: seeds are drawn again within each."""
    found = interquartile_mean_of({"a": [0.0, 0.1, 0.2], "b": [90.0, 90.1, 90.2]})
    assert found.interval is not None
    assert 44.9 < found.interval[0] <= found.interval[1] < 45.4
    assert interquartile_mean_of({"a": [0.0, 0.1, 0.2], "b": [90.0, 91.0]}).interval is None


def test_the_probability_of_improvement_by_hand() -> None:
    ours = {"a": [3.0, 3.0], "b": [1.0, 2.0]}
    other = {"b": [1.0, 3.0], "a": [1.0, 2.0]}
    # On a always; on b: 1 ties with 1 and loses to 3, 2 beats 1 and loses to 3.
    assert probability_of_improvement(ours, other).value == pytest.approx((1 + 1.5 / 4) / 2)


def test_performance_profiles_by_hand() -> None:
    scores = {"a": [10.0, 20.0], "b": [30.0]}
    assert performance_profile(scores, [0, 10, 20, 30]) == [1.0, 0.75, 0.5, 0.0]


def test_paired_differences_have_students_interval() -> None:
    values = [1.0, 4.0, 2.5, 3.0]
    theirs = scipy_stats.ttest_1samp(values, 0).confidence_interval()
    found = mean_difference([values])
    assert found.value == pytest.approx(np.mean(values))
    assert found.interval == pytest.approx((theirs.low, theirs.high), rel=1e-3)
    assert students_t(29.9) == pytest.approx(scipy_stats.t.ppf(0.975, 29), abs=1e-3)
    two = mean_difference([values, [7.0, 7.0, 7.0]])  # the second has no variance of its own
    assert two.interval == pytest.approx(
        (two.value - (theirs.high - 2.625) / 2, two.value + (theirs.high - 2.625) / 2), rel=1e-3
    )
    assert mean_difference([[1.0, 2.0]]) == Estimate(1.5, None)


def test_intervals_of_few_seeds_hold_what_they_promise() -> None:
    """19 of 20 intervals of three seeds on two sets hold the true difference, which is 0."""
    rng = np.random.default_rng(0)
    held = [low <= 0 <= high for low, high in _intervals(rng, trials=2000)]
    assert 0.93 < np.mean(held) < 0.985


def _intervals(rng: np.random.Generator, trials: int):
    for _ in range(trials):
        yield mean_difference(rng.normal(size=(2, 3)).tolist()).interval


def numbers(*values: float) -> Number:
    return Number(tuple(values))


def test_one_standard_deviation_worse_is_not_comparable() -> None:
    """What the old rule called comparable more than half of the time."""
    rng = np.random.default_rng(0)
    said = []
    for _ in range(500):
        ours, other = rng.normal(90, 10, 5), rng.normal(100, 10, 5)
        said.append(claim("", [Comparison("", numbers(*ours), numbers(*other))]).verdict)
    assert said.count("supported") / len(said) < 0.02
    assert said.count("undecided") > said.count("contradicted")  # five seeds do not say much
    many = [claim("", [Comparison(str(i), numbers(*rng.normal(90, 10, 5)),
                                  numbers(*rng.normal(100, 10, 5))) for i in range(20)])
            for _ in range(20)]  # fmt: skip
    assert sum(c.verdict == "contradicted" for c in many) > 10  # a hundred pairs do


def test_few_seeds_are_undecided() -> None:
    far = Comparison("a", numbers(100.0, 101.0), numbers(1.0, 2.0))
    found = claim("", [far], "better")
    assert (found.verdict, found.difference, found.interval) == ("undecided", 99.0, None)
    assert compare(far.ours, far.other) == "undecided"


@pytest.mark.parametrize(
    ("ours", "lead", "verdict", "word"),
    [
        ((60.0, 61.0, 62.0), "better", "supported", "better"),
        ((60.0, 61.0, 62.0), "as good", "supported", "better"),
        ((51.0, 52.0, 52.0), "better", "supported", "comparable"),
        ((49.0, 50.0, 51.0), "as good", "supported", "comparable"),
        ((49.0, 50.0, 52.0), "better", "undecided", "comparable"),
        ((40.0, 41.0, 42.5), "as good", "contradicted", "worse"),
        ((40.0, 50.0, 60.0), "as good", "undecided", "undecided"),
    ],
)
def test_verdicts_and_words(ours: tuple, lead, verdict: str, word: str) -> None:
    other = numbers(49.0, 50.0, 51.0)
    assert claim("", [Comparison("a", numbers(*ours), other)], lead).verdict == verdict
    assert compare(numbers(*ours), other).split()[0] == word


def test_errors_are_compared_by_their_ratio() -> None:
    ours, other = numbers(0.002, 0.0041, 0.0079), numbers(0.001, 0.002, 0.004)
    found = claim("", [Comparison("a", ours, other, higher_is_better=False)])
    assert (found.verdict, found.is_ratio) == ("contradicted", True)
    assert found.difference == pytest.approx((2 * 2.05 * 1.975) ** (1 / 3))
    assert found.interval is not None
    assert found.interval[0] < found.difference < found.interval[1]
    assert found.probability == pytest.approx(1.5 / 9)  # one wins, one ties
    better = claim("", [Comparison("a", other, ours, higher_is_better=False)], "better")
    assert better.verdict == "supported"
    assert compare(numbers(1.0, 1.0, 1.01), numbers(1.0, 1.0, 1.0), higher_is_better=False) == (
        "comparable x 1 [0.989, 1.02]"
    )


def test_pairs_are_those_of_the_same_seed() -> None:
    ours, other = Number((5.0, 6.0, 7.0), (0, 2, 3)), Number((1.0, 2.0, 3.0), (0, 1, 2))
    found = claim("", [Comparison("a", ours, other)])
    assert found.cases == (Case("a", 6.0, 2.0, "undecided", 3.5, None, 2),)


def test_claims_without_results() -> None:
    pairs = [Comparison("a", None, numbers(1.0)), Comparison("b", numbers(1.0), None)]
    assert claim("x", pairs) == Claim("x", "not measured")
    assert compare(None, numbers(1.0)) == "-"


def test_differences_as_text() -> None:
    assert difference_text(None, None) == "-"
    assert difference_text(3.14, (-2.0, 8.2)) == "+3.1 [-2.0, +8.2]"
    assert difference_text(3.14, None) == "+3.1 [no interval]"
    assert difference_text(math.exp(-1), (0.2, 0.5), is_ratio=True) == "x 0.368 [0.2, 0.5]"
    assert statistics.RESAMPLES >= 1000
