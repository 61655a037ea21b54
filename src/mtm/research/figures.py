"""Figures of experiments and collections, as PNG."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from mtm.core.atomic_write import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def save(figure: Figure, file: Path, dpi: int) -> None:
    """Write a figure: whoever is killed meanwhile leaves the one before, and no part of one.

    Raises:
        RunError: It could not be written.
    """
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=dpi)
    write_atomically(file, content.getvalue())
