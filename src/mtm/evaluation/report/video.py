"""An episode as a moving picture."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mtm.control.rendering import why_no_frames
from mtm.core.atomic_write import write_atomically
from mtm.core.errors import require

LONGEST = 400
"""Frames of a video; a GIF of a whole long episode would be too large to look at."""

EVERY = 2
"""Steps between frames."""

LARGEST_SIDE = 240
"""Pixels."""


class Film:
    """The frames of an episode: `watch` of `mtm.control.rollout.rollout`.

    Args:
        path: The GIF to write.
    """

    def __init__(self, path: str | Path) -> None:
        self._image: Any = require("PIL.Image", extra="report")
        self.path = Path(path)
        self.pictures: list[Any] = []

    def __call__(self, step: int, draw: Callable[[], Any]) -> None:
        """Take a frame now and then."""
        if step % EVERY == 0 and len(self.pictures) < LONGEST:
            picture = self._image.fromarray(draw())
            picture.thumbnail((LARGEST_SIDE, LARGEST_SIDE))
            self.pictures.append(picture)

    def save(self) -> str:
        """Write the file.

        Returns:
            One line for people: where the video is, or why there is none.

        Raises:
            RunError: It could not be written; what was there is intact.
        """
        if not self.pictures:
            return "no video: the episode failed before its first frame."
        first, *others = self.pictures
        content = io.BytesIO()
        first.save(content, "GIF", save_all=True, append_images=others, duration=33, loop=0)
        write_atomically(self.path, content.getvalue())
        return f"{self.path}: {len(self.pictures)} frames"


def film_of(env_id: str, path: str | Path, say: Callable[[str], None] = print) -> Film | None:
    """A film of an episode in an environment; None, with a notice, where nothing can be drawn.

    Raises:
        ConfigError: There is no such environment.
        MissingExtraError: The simulator, or what writes GIFs, is not installed.
    """
    film, missing = Film(path), why_no_frames(env_id)
    if missing is not None:
        say(f"no video: {missing}")
        return None
    return film
