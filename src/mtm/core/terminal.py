"""A console for text from elsewhere: Rich's markup in it (`[/red]`) is text like any other."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from mtm.core.escaping import shown


class PlainConsole(Console):
    """A console that takes all text as it is, also in tables: no markup, no control characters.

    Args:
        stderr: Print there.
        quiet: Print nothing.
    """

    def __init__(self, *, stderr: bool = False, quiet: bool = False) -> None:
        super().__init__(stderr=stderr, quiet=quiet, highlight=False, markup=False, emoji=False)

    def render_str(self, text: str, **options: Any) -> Text:
        """Text as it is printed."""
        return super().render_str(shown(text), **options)
