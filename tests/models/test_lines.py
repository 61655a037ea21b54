"""Straight lines between visible values."""

from __future__ import annotations

import numpy as np
import torch

from mtm.models.lines import between_visible


def test_lines_between_visible_values() -> None:
    hidden = torch.nan  # what is hidden must not matter
    values = torch.tensor([[hidden, 2.0, hidden, hidden, 8.0, hidden], [hidden] * 6])
    visible = torch.tensor([[0, 1, 0, 0, 1, 0], [0] * 6], dtype=torch.bool)
    expected = [[2, 2, 4, 6, 8, 8], [0] * 6]
    torch.testing.assert_close(between_visible(values, visible), torch.tensor(expected).float())
    wide = torch.stack([values, -values], dim=2)
    assert between_visible(wide, visible)[0, :, 1].tolist() == [-2, -2, -4, -6, -8, -8]


def test_lines_are_those_of_numpy() -> None:
    rng = np.random.default_rng(0)
    values, visible = rng.normal(size=(40, 9, 2, 3)), rng.random((40, 9)) < 0.4
    visible[:, 4] |= ~visible.any(axis=1)
    lines = between_visible(torch.from_numpy(values), torch.from_numpy(visible)).numpy()
    time = np.arange(9)
    for sample, shown, line in zip(values, visible, lines, strict=True):
        for place in np.ndindex(2, 3):
            known = sample[(shown, *place)]
            expected = np.interp(time, time[shown], known)
            np.testing.assert_allclose(line[(slice(None), *place)], expected, rtol=1e-6, atol=1e-6)
