"""Ridge regression."""

from __future__ import annotations

import numpy as np

from mtm.inference.ridge_regression import RidgeRegression


def test_a_linear_rule_is_found_and_a_penalty_makes_it_milder() -> None:
    x = np.random.default_rng(0).normal(3, 2, size=(500, 3))
    x[:, 2] = 7  # a constant feature says nothing
    y = 2 * x[:, 0] - x[:, 1] + 5
    np.testing.assert_allclose(RidgeRegression.fit(x, y, 1e-9)(x), y, atol=1e-5)
    mild = RidgeRegression.fit(x, y, 0.5)
    assert abs(mild.weights[:2]).sum() < abs(RidgeRegression.fit(x, y, 1e-9).weights[:2]).sum()


def test_the_solution_has_no_gradient() -> None:
    """Of the mean squared error and the penalty, over standardised features and intercept."""
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(50, 4)).astype(np.float32), rng.normal(size=50)
    found = RidgeRegression.fit(x, y, 0.1)
    design = np.hstack([(x - found.center) / found.scale, np.ones((50, 1))])
    gradient = design.T @ (found(x) - y) / 50 + 0.1 * found.weights
    np.testing.assert_allclose(gradient, 0, atol=1e-12)
