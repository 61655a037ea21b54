"""What is visible: random masks for training, named capabilities for asking. `True` is visible.

make_mask("random-autoregressive")        draws another mask for every sample
NAMED_MASKS["fd"].question(modalities, T)       what a capability shows, and what it wants back
draw(visible, modalities)                 a mask as a grid of text
"""

from mtm.masks.capabilities import NAMED_MASKS, NamedMask, Question
from mtm.masks.drawing import draw
from mtm.masks.make import NAMES, asked_in_training, make_mask, summary, training_mask
from mtm.masks.training_masks import (
    ListedShares,
    MaskFunction,
    MixedMask,
    RandomAutoregressiveMask,
    RandomMask,
    draw_one_for_all,
    draw_questions,
)

__all__ = [
    "NAMED_MASKS",
    "NAMES",
    "ListedShares",
    "MaskFunction",
    "MixedMask",
    "NamedMask",
    "Question",
    "RandomAutoregressiveMask",
    "RandomMask",
    "asked_in_training",
    "draw",
    "draw_one_for_all",
    "draw_questions",
    "make_mask",
    "summary",
    "training_mask",
]
