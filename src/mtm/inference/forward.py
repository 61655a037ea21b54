"""One pass through a run's network, from windows in raw units to predictions in the network's.

Rows that share a mask are answered by the network specialised to it (`mtm.models.fixed_mask`). A
policy asks the same mask step after step, and a capability the same of all rows. Whoever fills gaps
asks masks that hardly come again: to specialise to each would cost more than it saves. A few such
rows are answered by `mtm.models.few_tokens`, many by the packed network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mtm.data.modalities import BoolArray, IntArray
from mtm.models import few_tokens
from mtm.models.fixed_mask import FixedMask
from mtm.models.heads import Predictions
from mtm.models.members import Members
from mtm.runs.run import Run

MOST_MASKS = 4
"""Different masks of a batch up to which each is answered by itself; more share one packed pass."""


def forward(
    run: Run,
    window: Mapping[str, NDArray[Any]],
    visible: BoolArray,
    wanted: BoolArray,
    *,
    each: bool = False,
    specialised: bool = True,
    values_only: bool = False,
) -> Predictions:
    """What the network says of windows, in its own units.

    Args:
        run: A trained run.
        window: Modality -> (B, T, *shape); modalities that are left out must not be visible.
        visible: (B, T, M).
        wanted: (B, T, M).
        each: What each of several members says, with a leading axis, instead of all together.
        specialised: Whether these masks will be asked again.
        values_only: Whether nobody asks how sure the network is: then it need not say.

    Returns:
        As `MTM.forward`: of the modalities with a wanted token, whole segments.
    """
    packed = run.model.training or not specialised
    groups = None if packed else _rows_by_mask(visible, wanted)
    each = each and isinstance(run.model, Members)
    with torch.inference_mode():
        if groups is None:
            network: Callable[..., Predictions] = run.model
            if each and isinstance(run.model, Members):
                network = run.model.each
            inputs = tensors(run, window, visible.shape[:2])
            shown, asked = torch.from_numpy(visible), torch.from_numpy(wanted)
            if few_tokens.suits(run.model, shown, asked):
                return few_tokens.answer(run.model, inputs, shown, asked)
            return network(inputs, shown, asked)
        out = Predictions({}, {}, {})
        for rows in groups:
            first = 0 if rows is None else rows[0]
            fixed = run.fixed_masks.specialised(
                run.model, visible[first], wanted[first], values_only=values_only
            )
            mine = {n: window[n] if rows is None else window[n][rows] for n in fixed.inputs}
            count = len(visible) if rows is None else len(rows)
            inputs = {name: _normalised(run, name, raw) for name, raw in mine.items()}
            inputs = inputs or tensors(run, {}, (count, visible.shape[1]))  # where all is hidden
            answers = fixed.each(inputs) if each else fixed(inputs)
            _place(answers, fixed, rows, out, visible.shape[:2], int(each))
    return out


def tensors(run: Run, window: Mapping[str, NDArray[Any]], size: Sequence[int]) -> dict[str, Tensor]:
    """Normalised tensors of every modality, (B, T, *shape); zeros for those not in the window."""
    inputs = {}
    for m in run.modalities:
        if m.name in window:
            inputs[m.name] = _normalised(run, m.name, window[m.name])
        else:
            kind = torch.int64 if m.kind == "discrete" else torch.float32
            inputs[m.name] = torch.zeros(*size, *m.shape, dtype=kind, device=run.device)
    return inputs


def _normalised(run: Run, name: str, values: NDArray[Any]) -> Tensor:
    raw = torch.from_numpy(np.ascontiguousarray(values)).to(run.device)
    return run.normalizer.normalize(name, raw)


def _rows_by_mask(visible: BoolArray, wanted: BoolArray) -> list[IntArray | None] | None:
    """The rows of each mask, None standing for all; None if there are too many masks."""
    tokens = np.concatenate([part.reshape(len(part), -1) for part in (visible, wanted)], axis=1)
    return _equal_rows(tokens.tobytes(), len(tokens))


@lru_cache(maxsize=16)  # a policy asks the same masks step after step
def _equal_rows(tokens: bytes, count: int) -> list[IntArray | None] | None:
    """As `_rows_by_mask`, of rows of equally many bytes."""
    rows = np.frombuffer(tokens, np.uint8).reshape(count, -1)
    if (rows == rows[:1]).all():
        return [None]
    bits = np.packbits(rows, axis=1)
    masks, which = np.unique(bits.view(f"V{bits.shape[1]}")[:, 0], return_inverse=True)
    if len(masks) > MOST_MASKS:
        return None
    return [np.flatnonzero(which == i) for i in range(len(masks))]


def _place(
    answers: Predictions,
    fixed: FixedMask,
    rows: IntArray | None,
    out: Predictions,
    size: Sequence[int],
    leading: int,
) -> None:
    """Put the answers to some rows, (rows, w, *shape), among all, (B, T, *shape)."""
    for m, times in fixed.asked:
        where: tuple[Any, ...] = (slice(None), slice(times[0], times[-1] + 1))
        if rows is not None:
            where = (torch.from_numpy(rows)[:, None], torch.tensor(times))
        elif len(times) <= times[-1] - times[0]:  # with gaps
            where = (slice(None), torch.tensor(times))
        for part, whole in zip(answers, out, strict=True):
            if m.name in part:
                mine = part[m.name]
                if m.name not in whole:
                    shape = (*mine.shape[:leading], *size, *mine.shape[leading + 2 :])
                    whole[m.name] = mine.new_zeros(shape)
                whole[m.name][(slice(None),) * leading + where] = mine
