"""An exported capability that answers questions: raw units in, raw units out, NumPy arrays."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mtm.core.errors import DataError, unknown
from mtm.deploy.graph import Graph
from mtm.deploy.policy_file import GENERAL, PREDICTED, VISIBLE, PolicyFile, read_policy_file
from mtm.inference.inputs import Given, as_batch, as_values


class ExportedModel:
    """A capability that was exported; `inputs` and `outputs` say what it takes and gives.

    Args:
        exported: What the directory holds.
        capability: Any of its names.
        threads: As for `Graph`.
    """

    def __init__(self, exported: PolicyFile, capability: str, threads: int = 1) -> None:
        self.path, self.modalities = exported.path, exported.modalities
        self.capability, self.segment_length = capability, exported.segment_length
        self._graph = Graph(exported, exported.named(capability)[-1], threads)
        self.inputs, self.outputs = self._graph.inputs, self._graph.outputs

    def __call__(
        self,
        given: Mapping[str, ArrayLike],
        *,
        present: Mapping[str, ArrayLike] | None = None,
    ) -> dict[str, NDArray[Any]]:
        """Answer for one segment, or for a batch.

        Args:
            given: Modality -> (S, *shape) or (B, S, *shape). A capability with a mask of its own
                needs the steps that `inputs` names. `impute` takes up to T steps of any modality,
                with gaps: NaN, or masked. `represent` takes (..., *shape).
            present: For `impute`, modality -> booleans (S,) or (B, S): another way to mark gaps.

        Returns:
            What `outputs` names. Of `impute` every modality at every step: what was given where it
            was, predictions elsewhere, made in one pass.

        Raises:
            DataError: Something is missing, unknown, or of another shape.
        """
        if self.capability == GENERAL:
            return self._fill(Given.of(self, given, present or {}))
        if present is not None:
            raise DataError(f"`present` marks gaps, and {self.capability} takes none.")
        names = [port.name for port in self.inputs]
        for name in given:
            if name not in names:
                raise DataError(unknown(f"input of {self.capability}:", name, names))
        missing = [name for name in names if name not in given]
        if missing:
            raise DataError(f"{self.capability} also needs {', '.join(missing)}.")
        if not self.inputs[0].steps:
            return self._encode(given)
        arrays, batched = {}, set()
        for port in self.inputs:
            arrays[port.name], is_batch = as_batch(self, port.name, given[port.name])
            batched.add(is_batch)
            if arrays[port.name].shape[1] != len(port.steps):
                raise DataError(
                    f"{self.capability} takes {len(port.steps)} steps of {port.name!r}, got "
                    f"{arrays[port.name].shape[1]}."
                )
        if len(batched) > 1 or len({len(array) for array in arrays.values()}) > 1:
            shapes = ", ".join(f"{n} {np.shape(v)}" for n, v in given.items())
            raise DataError(f"all inputs need the same batch, got {shapes}.")
        answers = self._answer(arrays)
        return answers if batched.pop() else {name: array[0] for name, array in answers.items()}

    def _answer(self, feed: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        answers = self._graph({name: np.ascontiguousarray(a) for name, a in feed.items()})
        return {
            port.name.removeprefix(PREDICTED): array
            for port, array in zip(self.outputs, answers, strict=True)
        }

    def _encode(self, given: Mapping[str, ArrayLike]) -> dict[str, NDArray[Any]]:
        """Values of any leading axes to features of the same."""
        (port,) = self.inputs
        values = as_values(self, port.name, given[port.name])
        leading = values.shape[: values.ndim - len(port.shape)]
        found = self._answer({port.name: values.reshape(-1, *port.shape)})
        return {name: array.reshape(*leading, *array.shape[1:]) for name, array in found.items()}

    def _fill(self, given: Given) -> dict[str, NDArray[Any]]:
        """Every modality, with predictions where nothing was given."""
        B, S, _ = given.visible.shape
        T = self.segment_length
        if S > T:
            raise DataError(
                f"{S} steps were given; the model sees {T} at once. Cut them into pieces, or use "
                "mtm.impute, which does."
            )
        feed = {VISIBLE: np.zeros((B, T, len(self.modalities)), bool)}
        feed[VISIBLE][:, :S] = given.visible
        for port in self.inputs:
            if port.name != VISIBLE:
                feed[port.name] = np.zeros((B, *port.shape), port.type)
            if port.name in given.values:
                feed[port.name][:, :S] = given.values[port.name]
        filled = {}
        for name, answer in self._answer(feed).items():
            known = given.visible[:, :, self.modalities.place(name)]
            filled[name] = answer[:, :S]
            if name in given.values:
                filled[name][known] = given.values[name][known]
        return filled if given.batched else {name: array[0] for name, array in filled.items()}


def load_model(path: str | Path, capability: str, *, threads: int = 1) -> ExportedModel:
    """Load a capability that `mtm export` wrote, to ask it questions.

    Args:
        path: The directory.
        capability: One that was exported.
        threads: That share the work of one answer.

    Raises:
        RunError: The directory holds nothing that was exported, or something in it has changed.
        ConfigError: It holds no such capability.
        MissingExtraError: onnxruntime is not installed.
    """
    return ExportedModel(read_policy_file(path), capability, threads)
