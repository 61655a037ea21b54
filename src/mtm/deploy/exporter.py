"""A run's capabilities as ONNX graphs that were seen to answer as the run does.

A directory appears whole and checked, or not at all.
"""

from __future__ import annotations

import hashlib
import json
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from mtm.control import policies
from mtm.control.masked_policy import MaskedPolicy
from mtm.core.atomic_write import appearing, refuse_existing
from mtm.core.errors import ConfigError, RunError, require
from mtm.core.export_config import ExportConfig
from mtm.core.plain_data import sealed
from mtm.core.versions import versions
from mtm.data.modalities import BoolArray
from mtm.deploy.exported_policy import ExportedPolicy
from mtm.deploy.graph import BATCH, Graph
from mtm.deploy.graphs import AnyMaskGraph, EncoderGraph, FixedMaskGraph, Graphed
from mtm.deploy.parity import (
    action_difference,
    any_mask_difference,
    difference,
    feature_difference,
    segments_to_check,
)
from mtm.deploy.policy_file import (
    FILE_NAME,
    GENERAL,
    Acting,
    Check,
    GraphFile,
    PolicyFile,
    read_policy_file,
)
from mtm.evaluation.evaluate import weights_digest
from mtm.inference.engine import Arrays
from mtm.masks import NAMED_MASKS
from mtm.runs.run import Run

OPSET = 20
"""Of ONNX: the first one with GELU, which runtimes know since 2024."""
LARGEST_FILE = 2**31 - 1
"""Bytes of an ONNX file, by its format."""
ROWS_PLAYED = 64
"""Environments in which a policy and its export act side by side."""


@dataclass(frozen=True)
class _Planned:
    """A graph to write."""

    file: str
    module: Graphed
    visible: BoolArray | None = None


def export(run: Run, out: str | Path, config: ExportConfig | None = None) -> PolicyFile:
    """Write capabilities of a run as ONNX graphs, with what a runtime without PyTorch needs.

    Args:
        run: A trained run.
        out: The directory to write; it must not exist.
        config: What, and how.

    Returns:
        What was written, with the largest difference from the run that was seen.

    Raises:
        ConfigError: The run has not what a capability needs, or cannot be exported.
        RunError: A graph differs from the run by more than the tolerance. Nothing is left behind.
        DataError: There is something at `out`, or the data to check on cannot be used.
        MissingExtraError: The extra `export` is not installed.
    """
    out, config = Path(out), config or ExportConfig()
    for name in ("onnx", "onnxscript"):
        require(name, extra="export")
    require("onnxruntime", extra="deploy")
    refuse_existing(out)
    run = run.to("cpu")
    acting = {name: _policy(run, name, config) for name in config.capabilities}
    plans = {name: _plan(run, name, config, acting[name]) for name in config.capabilities}
    values, about = segments_to_check(run, config.data)
    count = len(next(iter(values.values())))
    described = PolicyFile(
        path=out,
        modalities=run.modalities,
        segment_length=run.segment_length,
        opset=OPSET,
        graphs={},
        acting={n: _acting(policy) for n, policy in acting.items() if policy is not None},
        check=Check(config.tolerance, 0.0, count, about),
        run=_origin(run),
    )
    try:
        with appearing(out) as folder:
            folder.mkdir()
            described = replace(described, path=folder)
            for name, planned in plans.items():
                guidance = config.guidance if name == "rcbc" else 1.0
                described = _add(described, run, name, planned, acting[name], values, guidance)
            text = json.dumps(sealed(described.to_json()), indent=2)
            (folder / FILE_NAME).write_text(text + "\n", encoding="utf-8")
            read_policy_file(folder)
    except OSError as error:
        raise RunError(f"could not write {out}: {error}.") from error
    return replace(described, path=out)


def _add(
    described: PolicyFile,
    run: Run,
    name: str,
    planned: Sequence[_Planned],
    policy: MaskedPolicy | None,
    values: Arrays,
    guidance: float,
) -> PolicyFile:
    """Write the graphs of a capability and compare them; raises `RunError` if they differ."""
    graphs = tuple(_write(described.path, plan) for plan in planned)
    checked = tuple(
        _checked(run, described, graph, plan, values, guidance)
        for graph, plan in zip(graphs, planned, strict=True)
    )
    described = replace(described, graphs={**described.graphs, name: checked})
    found = max(graph.largest_difference for graph in checked)
    if policy is not None:
        found = max(found, _played(policy, ExportedPolicy(described, name), values))
    return _let_pass(described, name, found)


def _policy(run: Run, capability: str, config: ExportConfig) -> MaskedPolicy | None:
    """The policy that a capability is, if it is one."""
    history = config.history or 0
    if capability == "bc":
        return policies.behavior_cloning(run, history=history)
    if capability == "rcbc":
        return policies.return_conditioned(
            run, config.target, history=history, guidance=config.guidance
        )
    return None


def _acting(policy: MaskedPolicy) -> Acting:
    (way,) = policy.ways
    returns = None if way.target is None else policy.asked_returns
    return Acting(way.history, way.target, returns)


def _plan(
    run: Run, capability: str, config: ExportConfig, policy: MaskedPolicy | None
) -> list[_Planned]:
    """The graphs of a capability."""
    known, T = run.modalities, run.segment_length
    if policy is not None:
        (way,) = policy.ways
        plans = []
        for now in range(way.history + 1):
            asked = policy.question(now)
            module = FixedMaskGraph(run, asked.visible, asked.wanted, way.guidance)
            name = f"{capability}-{now}.onnx" if way.history else f"{capability}.onnx"
            plans.append(_Planned(name, module, asked.visible))
        return plans
    file = f"{capability}.onnx"
    if capability == GENERAL:
        return [_Planned(file, AnyMaskGraph(run))]
    if capability == "represent":
        return [_Planned(file, EncoderGraph(run))]
    question = NAMED_MASKS[capability].question(
        known, T, config.history if capability == "fd" else None
    )
    wanted = question.wanted
    if capability == "id":  # what is visible is the same at all moments, so all are answered
        moments = np.arange(T - 1)
        wanted = np.logical_or.reduce(NAMED_MASKS["id"].questions(known, T, moments).wanted)
    return [_Planned(file, FixedMaskGraph(run, question.visible, wanted), question.visible)]


def _write(folder: Path, plan: _Planned) -> GraphFile:
    """Write one graph; its difference is not known yet."""
    module = plan.module.eval()
    size = sum(t.numel() * t.element_size() for t in (*module.parameters(), *module.buffers()))
    if size > LARGEST_FILE:
        raise ConfigError(
            f"the network has {size:,} bytes of weights; an ONNX file holds {LARGEST_FILE:,}."
        )
    example = tuple(
        torch.zeros(2, *port.shape, dtype=getattr(torch, port.type)) for port in module.inputs
    )
    batch = {0: torch.export.Dim(BATCH)}
    shapes = tuple(batch for _ in example)
    with _quietly():
        try:
            program = torch.onnx.export(
                module,
                example,
                input_names=[port.name for port in module.inputs],
                output_names=[port.name for port in module.outputs],
                opset_version=OPSET,
                dynamic_shapes=(shapes,),  # one argument: all of them
                external_data=False,
                verbose=False,
            )
        except torch.onnx.OnnxExporterError as error:
            raise RunError(
                f"PyTorch {torch.__version__} could not export {plan.file}: {error}"
            ) from error
    assert program is not None
    for node in program.model.graph:
        node.metadata_props.clear()  # where each node was in the source, with paths of this machine
        node.doc_string = None
    file = folder / plan.file
    program.save(file, external_data=False)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return GraphFile(plan.file, digest, module.inputs, module.outputs, 0.0)


def _checked(
    run: Run,
    described: PolicyFile,
    written: GraphFile,
    plan: _Planned,
    values: Arrays,
    guidance: float,
) -> GraphFile:
    """A graph with its difference from the run."""
    graph = Graph(described, written)
    if isinstance(plan.module, AnyMaskGraph):
        found = any_mask_difference(run, graph, values)
    elif isinstance(plan.module, EncoderGraph):
        found = feature_difference(run, graph, values)
    else:
        assert plan.visible is not None
        found = difference(run, graph, values, plan.visible, guidance)
    return replace(written, largest_difference=found)


def _played(policy: MaskedPolicy, exported: ExportedPolicy, values: Arrays) -> float:
    """The largest difference of actions, side by side, twice through the segments' states.

    A third of the rows begin anew in between. Both go on from the exported one's actions.
    """
    states = values[policy.states.name][:ROWS_PLAYED]
    n, T = states.shape[:2]
    earned = [values[m.name][:ROWS_PLAYED] for m in policy.run.modalities.of_role("reward")]
    rewards = earned[0].reshape(n, T) if earned and earned[0].size == n * T else np.ones((n, T))
    largest = 0.0
    for acting in (policy, exported):
        acting.reset(n)
    for step in range(2 * T):
        now = step % T
        expected, found = policy.act(states[:, now]), exported.act(states[:, now])
        largest = max(largest, action_difference(policy.run, expected, found))
        policy.take(found)
        dones = (np.arange(n) % 3 == 0) & (step == T // 2)
        for acting in (policy, exported):
            acting.observe(rewards[:, now], dones)
    return largest


def _let_pass(described: PolicyFile, name: str, found: float) -> PolicyFile:
    """Note the difference of a capability; raise `RunError` if it is too large."""
    check = described.check
    if not found <= check.tolerance:
        raise RunError(
            f"the exported {name} differs from the run by {found:.2g}, more than the tolerance "
            f"{check.tolerance:g} (on {check.segments} segments: {check.of}). Nothing was written. "
            "A higher --tolerance lets it pass."
        )
    largest = max(check.largest_difference, found)
    return replace(described, check=replace(check, largest_difference=largest))


def _origin(run: Run) -> dict[str, object]:
    return {
        "name": run.path.name,
        "step": run.step,
        "members": run.members,
        "weights": weights_digest(run.model),
        "data": run.description.data["fingerprint"],
        "environment": run.description.metadata.env_id,
        "versions": versions(("onnx", "onnxscript", "onnxruntime")),
    }


@contextmanager
def _quietly() -> Iterator[None]:
    """Without what the exporter says about its own insides, and about libraries nobody needs."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
