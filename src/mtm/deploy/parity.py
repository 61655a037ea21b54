"""Whether an exported graph answers as the run does.

Differences of numbers are told in units of the training data's standard deviation, or of the
number itself where that is larger: single precision has no more to give. Of classes, it is how much
less likely the run holds the class that the graph chose than its own choice: 0 if both are the
same. Features have unit scale.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from mtm.core.errors import DataError, MissingExtraError
from mtm.core.randomness import Purpose, generator
from mtm.data.loading import DataSpec
from mtm.data.modalities import BoolArray, Modality
from mtm.data.segments import Segments
from mtm.deploy.graph import Graph
from mtm.deploy.policy_file import FEATURES, VISIBLE
from mtm.inference.engine import Arrays, dtype_of
from mtm.inference.forward import tensors
from mtm.inference.queries import represent
from mtm.inference.run_data import reported_episodes
from mtm.masks import RandomAutoregressiveMask, RandomMask
from mtm.models.heads import Predictions
from mtm.runs.run import Run

SEGMENTS = 256
"""That an export is compared on."""


def segments_to_check(run: Run, data: DataSpec | None = None) -> tuple[Arrays, str]:
    """Held-out segments, or made-up ones where the run's data cannot be found.

    Args:
        run: A trained run.
        data: Where its data are, or others; None: where they were.

    Returns:
        Modality -> (B, T, *shape) in raw units, and what they are, in words.

    Raises:
        DataError: The data that were named cannot be used.
    """
    try:
        episodes = reported_episodes(run, data)
    except (DataError, MissingExtraError):
        if data is not None:
            raise
        return _made_up(run), "made up from the statistics of the data, which were not found"
    segments = Segments(episodes, run.segment_length)
    batch = segments.gather(segments.sample(SEGMENTS, seed=0))
    values = {}
    for i, m in enumerate(run.modalities):
        values[m.name] = np.array(batch.values[m.name], dtype_of(m))
        values[m.name][~batch.present[:, :, i]] = 0
    return values, f"held-out segments of {data or run.description.data['spec']}"


def difference(
    run: Run, graph: Graph, values: Arrays, visible: BoolArray, guidance: float = 1.0
) -> float:
    """The largest difference of a graph with a fixed mask from the run, on these segments.

    Args:
        run: A trained run, on the CPU.
        graph: What was exported.
        values: Modality -> (B, T, *shape), raw.
        visible: The mask, (T, M).
        guidance: That the graph was made with.
    """
    feed = {p.name: np.ascontiguousarray(values[p.name][:, list(p.steps)]) for p in graph.inputs}
    wanted = np.zeros_like(visible)
    for port in graph.outputs:
        wanted[list(port.steps), run.modalities.place(port.modality)] = True
    expected = _ask(run, values, visible, wanted)
    untold = visible.copy()
    untold[:, [m.role == "return" for m in run.modalities]] = False
    plain = _ask(run, values, untold, wanted) if guidance != 1 else expected
    largest = 0.0
    for port, found in zip(graph.outputs, graph(feed), strict=True):
        m, steps = run.modalities.named(port.modality), list(port.steps)
        told = expected.values[m.name][:, steps]
        if guidance != 1:
            told = torch.lerp(plain.values[m.name][:, steps], told, guidance)
        largest = max(largest, _distance(run, m, told, found))
    return largest


def any_mask_difference(run: Run, graph: Graph, values: Arrays) -> float:
    """As `difference`, of the graph that takes the mask: with random ones, all, and none."""
    count = len(next(iter(values.values())))
    rng = generator(0, Purpose.MASKS)
    largest = 0.0
    for kind in (RandomMask(), RandomAutoregressiveMask()):
        visible = kind(run.modalities, run.segment_length, count, rng)
        visible[:1], visible[1:2] = True, False
        with torch.inference_mode():
            inputs = tensors(run, values, visible.shape[:2])
            expected = run.model(inputs, torch.from_numpy(visible))
        answers = graph({**values, VISIBLE: visible})
        for port, found in zip(graph.outputs, answers, strict=True):
            m = run.modalities.named(port.modality)
            largest = max(largest, _distance(run, m, expected.values[m.name], found))
    return largest


def feature_difference(run: Run, graph: Graph, values: Arrays) -> float:
    """As `difference`, of the encoder."""
    (port,), (out,) = graph.inputs, graph.outputs
    assert out.modality == FEATURES
    states = values[port.name].reshape(-1, *port.shape)
    expected, (found,) = represent(run, states), graph({port.name: states})
    return _largest(np.abs(found - expected) / np.maximum(np.abs(expected), 1.0))


def action_difference(run: Run, expected: NDArray[Any], found: NDArray[Any]) -> float:
    """Of actions that two policies took, (..., *shape); 1 where classes differ."""
    m = run.modalities.only("action")
    if m.kind == "discrete":
        return float((expected != found).any())
    scale = np.maximum(np.abs(expected), run.normalizer.statistics[m.name].std)
    return _largest(np.abs(found - expected) / scale)


def _ask(run: Run, values: Arrays, visible: BoolArray, wanted: BoolArray) -> Predictions:
    """What the run says in its own units, of one mask for all."""
    count = len(next(iter(values.values())))
    shown, asked = (np.repeat(mask[None], count, axis=0) for mask in (visible, wanted))
    with torch.inference_mode():
        inputs = tensors(run, values, shown.shape[:2])
        answer: Predictions = run.model(inputs, torch.from_numpy(shown), torch.from_numpy(asked))
    return answer


def _distance(run: Run, m: Modality, expected: torch.Tensor, found: NDArray[Any]) -> float:
    """Between what the run says of a modality, in its own units, and a graph's raw answer."""
    if m.kind == "discrete":
        shares = expected.softmax(dim=-1)
        chosen = shares.gather(-1, torch.from_numpy(found).unsqueeze(-1)).squeeze(-1)
        return float((shares.amax(dim=-1) - chosen).max())
    raw = run.normalizer.denormalize(m.name, expected).numpy()
    scale = np.maximum(np.abs(raw), run.normalizer.statistics[m.name].std)
    return _largest(np.abs(found - raw) / scale)


def _largest(differences: NDArray[Any]) -> float:
    """The largest one; infinite where one is no number."""
    return float(np.nan_to_num(differences, nan=np.inf, posinf=np.inf).max(initial=0.0))


def _made_up(run: Run) -> Arrays:
    """Numbers around the means of the data, and classes as they come."""
    rng = generator(0, Purpose.SYNTHETIC)
    size = (SEGMENTS, run.segment_length)
    values: Mapping[str, NDArray[Any]] = {
        m.name: rng.integers(m.classes, size=size)
        if m.kind == "discrete"
        else (
            run.normalizer.statistics[m.name].mean
            + rng.standard_normal((*size, *m.shape)) * run.normalizer.statistics[m.name].std
        ).astype(np.float32)
        for m in run.modalities
    }
    return dict(values)
