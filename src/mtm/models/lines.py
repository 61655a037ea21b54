"""Straight lines between the visible values of a modality: what a residual is added to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from mtm.data.modalities import Modality
from mtm.data.neighbours import last_known, next_known


def add_lines(
    modalities: Sequence[Modality],
    predictions: dict[str, Tensor],
    values: Mapping[str, Tensor],
    visible: Tensor,
) -> None:
    """Make predicted changes of states into states, in place; `visible` (B, T, M) is on the CPU."""
    for i, m in enumerate(modalities):
        if has_line(m) and m.name in predictions:
            line = between_visible(values[m.name], visible[:, :, i])
            predictions[m.name] = predictions[m.name] + line


def has_line(m: Modality) -> bool:
    """Whether a modality is predicted as changes from a line."""
    return m.role == "state" and m.kind == "continuous"


def between_visible(values: Tensor, visible: Tensor) -> Tensor:
    """Straight lines between visible values in time; before and after them, the nearest one.

    Args:
        values: (B, T, *shape).
        visible: (B, T), on the CPU; where a sample has none, the result is zero.
    """
    T = visible.shape[1]
    time = torch.arange(T)
    before = torch.from_numpy(last_known(visible.numpy()))  # (B, T), -1 if there is none
    after = torch.from_numpy(next_known(visible.numpy()))  # (B, T), T if there is none
    first = torch.where(before < 0, after, before).clamp(max=T - 1)
    second = torch.where(after >= T, before, after).clamp(min=0)
    share = (time - first).clamp(min=0) / (second - first).clamp(min=1)  # of the way to `second`
    flat = values.flatten(2) if values.ndim > 2 else values.unsqueeze(2)  # (B, T, size)
    width, device = flat.shape[2], values.device
    start, end = (
        flat.gather(1, place.to(device, non_blocking=True).unsqueeze(2).expand(-1, -1, width))
        for place in (first, second)
    )
    weight = share.to(flat.dtype).to(device, non_blocking=True).unsqueeze(2)  # (B, T, 1)
    line = torch.lerp(start, end, weight)
    found = visible.any(dim=1)[:, None, None].to(device, non_blocking=True)
    return line.masked_fill(~found, 0.0).view(values.shape)
