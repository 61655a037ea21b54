"""An ONNX graph in memory, with what `policy.json` says of it."""

from __future__ import annotations

import hashlib
from typing import Any

from numpy.typing import NDArray

from mtm.core.errors import ConfigError, RunError, require
from mtm.deploy.policy_file import GraphFile, PolicyFile, Port

BATCH = "batch"
"""How graphs call their first axis, which may have any length."""


class Graph:
    """A graph that is ready to answer.

    Args:
        folder: What holds it.
        described: Which graph.
        threads: That share the work of one answer. For one state at a time, one is the fastest.

    Raises:
        MissingExtraError: onnxruntime is not installed.
        ConfigError: There cannot be so many threads.
        RunError: The file is missing, is not the one that was exported, or cannot be loaded.
    """

    def __init__(self, folder: PolicyFile, described: GraphFile, threads: int = 1) -> None:
        if threads < 1:
            raise ConfigError(f"threads must be at least 1, got {threads}.")
        runtime = require("onnxruntime", extra="deploy")
        self.inputs, self.outputs = described.inputs, described.outputs
        file = folder.path / described.file
        try:
            data = file.read_bytes()
        except OSError as error:
            raise RunError(f"{file}, which policy.json names, cannot be read: {error}.") from error
        found = hashlib.sha256(data).hexdigest()
        if found != described.sha256:
            raise RunError(
                f"{file} is not what was exported: its SHA-256 is {found}, policy.json says "
                f"{described.sha256}. Export it again, or copy it again."
            )
        options = runtime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 3  # errors only
        try:
            session = runtime.InferenceSession(data, options, ["CPUExecutionProvider"])
        except Exception as error:  # its errors have no common base of their own
            raise RunError(
                f"onnxruntime {runtime.__version__} cannot load {file} (opset {folder.opset}): "
                f"{error} Use a newer onnxruntime, or export it again."
            ) from error
        _check(file.name, session.get_inputs(), self.inputs)
        _check(file.name, session.get_outputs(), self.outputs)
        self._names = [port.name for port in self.outputs]
        self._session = session

    def __call__(self, feed: dict[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """Answer: arrays of `inputs` by name, (B, *shape) each, to those of `outputs`, in order."""
        answers: list[NDArray[Any]] = self._session.run(self._names, feed)
        return answers


_TYPES = {"float32": "tensor(float)", "int64": "tensor(int64)", "bool": "tensor(bool)"}
"""Our names of types -> those of onnxruntime."""


def _check(file: str, found: list[Any], described: tuple[Port, ...]) -> None:
    """Raise `RunError` unless a graph has the ports that it is described with, for any batch."""
    has = [(port.name, port.type, tuple(port.shape)) for port in found]
    said = [(port.name, _TYPES.get(port.type), (BATCH, *port.shape)) for port in described]
    if has != said:
        raise RunError(f"{file} has the inputs or outputs {has}, policy.json says {said}.")
