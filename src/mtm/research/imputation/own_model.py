"""Our model as a method that fills gaps: all lost tokens in one call of `fill`."""

from __future__ import annotations

import numpy as np

from mtm.data.modalities import BoolArray
from mtm.inference.engine import Arrays
from mtm.inference.inputs import Given
from mtm.inference.windowing import fill, no_certainty
from mtm.research.imputation.samples import Floats
from mtm.research.imputation.score import Filled
from mtm.runs.run import Run


class OwnModel:
    """A run that was trained on `mtm.research.imputation.samples.as_sensors`."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._sizes = [m.size for m in run.modalities]

    def __call__(self, windows: Floats, hidden: BoolArray) -> Filled:
        """The answers and the standard deviations that the model states."""
        run, cuts = self.run, np.cumsum(self._sizes)[:-1]
        parts = np.split(windows, cuts, axis=2)
        lost = np.stack([part[:, :, 0] for part in np.split(hidden, cuts, axis=2)], axis=2)
        values: Arrays = {}
        for i, (m, part) in enumerate(zip(run.modalities, parts, strict=True)):
            s = run.normalizer.statistics[m.name]
            raw = (part * s.std.ravel() + s.mean.ravel()).astype(np.float32)
            raw[lost[:, :, i]] = 0
            values[m.name] = raw.reshape(*part.shape[:2], *m.shape)
        names = [m.name for i, m in enumerate(run.modalities) if lost[:, :, i].any()]
        stated = no_certainty(run, names, (len(windows), windows.shape[1]))
        given = Given(values, ~lost, True)
        answers = fill(run, given, names, lost, stated)
        found, deviations = windows.copy(), np.zeros_like(windows)
        for i, m in enumerate(run.modalities):
            if m.name not in names:
                continue
            s, here = run.normalizer.statistics[m.name], lost[:, :, i]
            columns = slice(sum(self._sizes[:i]), sum(self._sizes[: i + 1]))
            raw = answers[m.name].reshape(*here.shape, m.size)
            sure = stated[m.name].reshape(*here.shape, m.size)
            found[:, :, columns][here] = ((raw - s.mean.ravel()) / s.std.ravel())[here]
            deviations[:, :, columns][here] = (sure / s.std.ravel())[here]
        return Filled.normal(found, deviations)
