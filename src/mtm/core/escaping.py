"""Text from elsewhere, for the terminal: what steers it is written out, never obeyed.

With control characters in a path, an environment's name or a note of a file, somebody could move
the cursor, set the window's title or hide what was said.
"""

from __future__ import annotations

import unicodedata

KEPT = "\n\t"
"""Control characters that text may have."""

HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode's categories of what steers a terminal, or the direction of its text."""


def shown(text: object) -> str:
    """Text with its control characters written out: a backslash and their number."""
    return "".join(
        c
        if c in KEPT or unicodedata.category(c) not in HIDDEN
        else c.encode("unicode_escape", "surrogatepass").decode()
        for c in str(text)
    )


def say(text: object) -> None:
    """Print a line of which a part may come from elsewhere."""
    print(shown(text))
