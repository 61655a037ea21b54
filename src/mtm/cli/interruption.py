"""The exit code of a training that a signal ended early: it has saved, and yet was interrupted."""

from __future__ import annotations


def tell_if_stopped(step: int, steps: int, stop_at: int | None) -> None:
    """Raise `KeyboardInterrupt`, which is exit code 130, unless the sitting reached its end."""
    if step < min(steps, stop_at or steps):
        raise KeyboardInterrupt
