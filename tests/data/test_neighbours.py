"""Known steps around each step."""

from __future__ import annotations

import numpy as np

from mtm.data.neighbours import distances, last_known, nearest, neighbours, next_known

KNOWN = np.array([[False, True, False, False, True, False]])
NOTHING = np.zeros((1, 4), bool)


def test_the_last_and_the_next_known_step_may_be_the_step_itself() -> None:
    assert last_known(KNOWN).tolist() == [[-1, 1, 1, 1, 4, 4]]
    assert next_known(KNOWN).tolist() == [[1, 1, 4, 4, 4, 6]]
    assert last_known(NOTHING).tolist() == [[-1] * 4]
    assert next_known(NOTHING).tolist() == [[4] * 4]


def test_neighbours_are_other_steps() -> None:
    before, after = neighbours(KNOWN)
    assert before.tolist() == [[-1, -1, 1, 1, 1, 4]]
    assert after.tolist() == [[1, 4, 4, 4, 6, 6]]


def test_distances_and_nearest_steps() -> None:
    before, after = distances(KNOWN, 3)[0].T.tolist()
    assert before == [3, 3, 1, 2, 3, 1]
    assert after == [1, 3, 2, 1, 3, 3]
    assert nearest(KNOWN).tolist() == [[1, 4, 1, 4, 1, 4]]
    assert (nearest(NOTHING) == -1).all()
