"""`policy.json`: what an exported directory holds, and how it is to be used.

    DIR/policy.json    modalities, graphs and their digests, how to act, how far off it may be
    DIR/rcbc.onnx      a graph; with `history`, one for each number of past steps: rcbc-0.onnx, ...

Reading it needs neither PyTorch nor ONNX, runs nothing, and opens no file outside of the directory.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from mtm.control.asked_returns import AskedReturns
from mtm.core.errors import ConfigError, MTMError, RunError
from mtm.core.plain_data import unsealed
from mtm.data.modalities import Modalities, Modality

FILE_NAME = "policy.json"
FORMAT = 1
GENERAL = "impute"
"""The capability that takes any mask: its graph has the mask as one more input."""
VISIBLE = "mask.visible"
"""That input. No modality has such a name, for a dot is in it."""
PREDICTED = "predicted."
"""Before the name of a modality that a graph gives, for it may take one of the same name too."""
FEATURES = "features"
"""What `represent` gives, which is no modality."""
TYPES = ("float32", "int64", "bool")


@dataclass(frozen=True)
class Port:
    """An input or an output of a graph.

    Attributes:
        name: In the graph.
        type: Of its numbers, one of `TYPES`.
        shape: Without the batch, which comes first.
        steps: The steps of a segment that it holds, along the first axis of `shape`; none where
            there is no such axis.
    """

    name: str
    type: str
    shape: tuple[int, ...]
    steps: tuple[int, ...] = ()

    @property
    def modality(self) -> str:
        """The modality that it takes or gives."""
        return self.name.removeprefix(PREDICTED)


@dataclass(frozen=True)
class GraphFile:
    """A graph of the directory.

    Attributes:
        file: Its name.
        sha256: Of its bytes.
        inputs: In the graph's order.
        outputs: In the graph's order.
        largest_difference: From the run's own answers, see `mtm.deploy.parity`.
    """

    file: str
    sha256: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    largest_difference: float


@dataclass(frozen=True)
class Acting:
    """How a policy uses its graphs.

    Attributes:
        history: Past steps that it shows; graph k is for a row that remembers k of them.
        target: Return that it asks for first; None for cloning.
        returns: How it goes on asking; None for cloning.
    """

    history: int
    target: float | None = None
    returns: AskedReturns | None = None


@dataclass(frozen=True)
class Check:
    """What an export was compared on before it was allowed to exist."""

    tolerance: float
    largest_difference: float
    segments: int
    of: str


@dataclass(frozen=True)
class PolicyFile:
    """What `policy.json` says.

    Attributes:
        path: The directory.
        modalities: The streams that the run knows, in order.
        segment_length: T.
        opset: Of the graphs.
        graphs: Of each capability, in the order of the export.
        acting: Of the capabilities that are policies.
        check: How it was checked.
        run: Where it comes from: name, step, digest of the weights, versions.
    """

    path: Path
    modalities: Modalities
    segment_length: int
    opset: int
    graphs: dict[str, tuple[GraphFile, ...]]
    acting: dict[str, Acting]
    check: Check
    run: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "format": FORMAT,
            "opset": self.opset,
            "segment_length": self.segment_length,
            "modalities": [m.to_json() for m in self.modalities],
            "capabilities": {
                name: {
                    "graphs": [asdict(graph) for graph in graphs],
                    "acting": asdict(self.acting[name]) if name in self.acting else None,
                }
                for name, graphs in self.graphs.items()
            },
            "check": asdict(self.check),
            "run": self.run,
        }

    def named(self, capability: str) -> tuple[GraphFile, ...]:
        """The graphs of a capability.

        Raises:
            ConfigError: It was not exported.
        """
        if capability not in self.graphs:
            raise ConfigError(
                f"{self.path} holds no capability {capability!r}; it was exported with "
                f"{', '.join(self.graphs)}. Export it: mtm export RUN --capability {capability}."
            )
        return self.graphs[capability]


def read_policy_file(path: str | Path) -> PolicyFile:
    """Read and check the `policy.json` of a directory.

    Raises:
        RunError: There is none, it is damaged or of a newer format, or it does not fit itself.
    """
    path = Path(path)
    file = path / FILE_NAME
    try:
        plain = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise RunError(
            f"there is no {FILE_NAME} in {path}; mtm export RUN --out DIR writes such a directory."
        ) from error
    except (OSError, ValueError) as error:
        raise RunError(f"{file} cannot be read: {error}.") from error
    if (
        isinstance(plain, dict)
        and isinstance(plain.get("format"), int)
        and plain["format"] > FORMAT
    ):
        raise RunError(
            f"{file} has format {plain['format']}, this version of mtm reads up to {FORMAT}. Use a "
            "newer version."
        )
    try:
        return _checked(_parsed(path, unsealed(plain)))
    except (MTMError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise RunError(f"{file} is damaged: {type(error).__name__}: {error}.") from error


def _parsed(path: Path, plain: Mapping[str, Any]) -> PolicyFile:
    if plain["format"] != FORMAT:
        raise ValueError(f"format {plain['format']!r}")
    parts = plain["capabilities"]
    return PolicyFile(
        path,
        Modalities(Modality.from_json(m) for m in plain["modalities"]),
        plain["segment_length"],
        plain["opset"],
        {name: tuple(_graph(g) for g in part["graphs"]) for name, part in parts.items()},
        {name: _acting(part["acting"]) for name, part in parts.items() if part["acting"]},
        Check(**plain["check"]),
        dict(plain["run"]),
    )


def _graph(plain: Mapping[str, Any]) -> GraphFile:
    ports = {key: tuple(_port(port) for port in plain[key]) for key in ("inputs", "outputs")}
    return GraphFile(**{**plain, **ports})


def _port(plain: Mapping[str, Any]) -> Port:
    return Port(**{**plain, "shape": tuple(plain["shape"]), "steps": tuple(plain["steps"])})


def _acting(plain: Mapping[str, Any]) -> Acting:
    target, rule = plain["target"], plain["returns"]
    if rule is None:
        return Acting(int(plain["history"]), target)
    returns = AskedReturns(
        discount=float(rule["discount"]),
        horizon=None if rule["horizon"] is None else int(rule["horizon"]),
        is_sum=bool(rule["is_sum"]),
        low=float(rule["low"]),
        high=float(rule["high"]),
    )
    return Acting(int(plain["history"]), None if target is None else float(target), returns)


def _checked(found: PolicyFile) -> PolicyFile:
    """The same, if its parts fit each other; raises `ValueError` or `TypeError` if not."""
    if not found.segment_length >= 1 or not found.graphs:
        raise ValueError(f"segment_length {found.segment_length}, {len(found.graphs)} capabilities")
    for name, graphs in found.graphs.items():
        acting = found.acting.get(name)
        if not graphs or len(graphs) != (1 if acting is None else acting.history + 1):
            raise ValueError(f"{name} has {len(graphs)} graphs")
        if acting is not None and (acting.target is None) != (acting.returns is None):
            raise ValueError(f"{name} has a target without a rule, or a rule without a target")
        for graph in graphs:
            _check_file_name(graph.file)
            for port in (*graph.inputs, *graph.outputs):
                _check_port(found, port)
    return found


def _check_file_name(name: str) -> None:
    """Raise `ValueError` unless it is the name of a file in the same folder."""
    is_plain = all(kind(name).name == name for kind in (PurePosixPath, PureWindowsPath))
    if not is_plain or not name.endswith(".onnx"):
        raise ValueError(f"{name!r} is not the name of a graph in this folder")


def _check_port(found: PolicyFile, port: Port) -> None:
    """Raise `ValueError` unless a port is what the modalities say."""
    expected: tuple[str, tuple[int, ...]]
    if port.name == VISIBLE:
        expected = ("bool", (found.segment_length, len(found.modalities)))
    elif port.name == PREDICTED + FEATURES and not port.steps:
        expected = ("float32", port.shape)
    else:
        m = found.modalities.named(port.modality)
        steps = (len(port.steps),) if port.steps else ()
        expected = ("int64" if m.kind == "discrete" else "float32", (*steps, *m.shape))
    if (port.type, port.shape) != expected:
        raise ValueError(f"{port.name} is {port.type} {port.shape}, not {expected}")
    if any(not 0 <= step < found.segment_length for step in port.steps):
        raise ValueError(f"{port.name} has the steps {port.steps}")
