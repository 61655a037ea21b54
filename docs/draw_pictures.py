"""Draws the pictures of the docs: the idea, every mask, the network and the icon.

    python docs/draw_pictures.py            writes docs/images/*.svg
    python docs/draw_pictures.py --check    fails if a committed picture is not what it would draw

What is visible and what is wanted comes from `mtm.masks` itself, so a picture cannot go stale: a
test runs the check. One set of colours serves a light and a dark page, since a picture in a README
does not know which it is on: cells are solid, and text is the grey that stands out from both.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from mtm.core.config import TrainConfig
from mtm.data.modalities import BoolArray, Modality
from mtm.masks import NAMED_MASKS, NAMES, training_mask

IMAGES = Path(__file__).parent / "images"
T = 4
"""Steps of the drawn segments: as many as the presets have."""

MODALITIES = (
    Modality("states", (11,)),
    Modality("returns", role="return"),
    Modality("actions", (3,), role="action"),
)
DRAWS = 4
"""How many draws of a random mask are shown."""

SHOWN, ASKED, GREY, LIGHT = "#4568dc", "#e8710a", "#7d838c", "#ffffff"
HOLLOW = (
    f'fill="{GREY}" fill-opacity="0.08" stroke="{GREY}" stroke-opacity="0.8" stroke-dasharray="4 4"'
)
CELL, GAP = 42, 5
STEP = CELL + GAP
WIDE, HIGH = T * STEP - GAP, len(MODALITIES) * STEP - GAP

POSES = (  # a hopper's toe, heel, knee, hip and head at each step, within a cell
    ((27, 36), (17, 36), (21, 27), (17, 17), (20, 8)),
    ((27, 36), (17, 36), (27, 29), (15, 23), (21, 14)),
    ((27, 35), (19, 31), (22, 22), (19, 14), (23, 6)),
    ((33, 32), (23, 31), (29, 23), (18, 17), (24, 8)),
)
TORQUES = ((8, -6, 5), (13, 9, -7), (-7, 12, 9), (5, -9, -12))
RETURNS = ("2.9", "2.9", "2.8", "2.8")

STYLE = f"""
  text {{ font-family: system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }}
  .word {{ fill: {GREY}; font-size: 17px; font-weight: 600; }}
  .note {{ fill: {GREY}; font-size: 15px; font-weight: 500; }}
  .name {{ font-size: 19px; font-weight: 700; }}
  .flow {{ fill: none; stroke-width: 2.5; stroke-linecap: round; stroke-dasharray: 1 8; }}
  @media (prefers-reduced-motion: no-preference) {{
    .flow {{ animation: flow 1.2s linear infinite; }}
    .ask {{ animation: ask 2.4s ease-in-out infinite; }}
  }}
  @keyframes flow {{ to {{ stroke-dashoffset: -18; }} }}
  @keyframes ask {{ 50% {{ opacity: 0.45; }} }}
"""


def idea() -> str:
    """Three masks of one segment, one network, three models: the picture of the README."""
    left, top, between = 118, 78, 62
    columns = [
        ("fd", "forward dynamics", "what comes next?", _pose(3)),
        ("id", "inverse dynamics", "what was done?", _torque(2)),
        ("rcbc", "a policy", "what to do to earn that?", _torque(3)),
    ]
    width, bar, answers = left + 3 * WIDE + 2 * between + 46, top + HIGH + 60, top + HIGH + 166
    middle = [left + i * (WIDE + between) + WIDE / 2 for i in range(3)]
    parts = [
        _legend((left, 20), [("shown", "you show"), ("asked", "you ask"), ("hidden", "hidden")])
    ]
    parts += [_row_names(left - 14, top)]
    for x, (name, *_) in zip(middle, columns, strict=True):
        question = NAMED_MASKS[name].question(MODALITIES, T)
        parts += [_grid((x - WIDE / 2, top), question.visible, question.wanted)]
        parts += [_times((x - WIDE / 2, top - 10))]
        parts += [
            _flow(x, top + HIGH + 12, bar - 10, SHOWN),
            _flow(x, bar + 60, answers - 10, ASKED),
        ]
    parts += [
        _rectangle((left, bar), (width - left - 46, 50), 12, _solid(SHOWN)),
        _text(middle[1], bar + 32, "one network, the same weights", "name", fill=LIGHT),
    ]
    for x, (_, title, question, glyph) in zip(middle, columns, strict=True):
        corner = x - CELL / 2, answers
        parts += [_cell(corner, ASKED), _at(corner, glyph)]
        parts += [_text(x, answers + CELL + 28, title, "name", fill=ASKED)]
        parts += [_text(x, answers + CELL + 50, question, "note")]
    about = "Three masks of the same trajectory make one network three models."
    return _svg(width, answers + CELL + 66, parts, about)


def capability(name: str) -> str:
    """A named mask at its usual moment."""
    left, top = 92, 34
    question = NAMED_MASKS[name].question(MODALITIES, T)
    parts = [_row_names(left - 12, top), _times((left, top - 10))]
    parts += [_grid((left, top), question.visible, question.wanted)]
    return _svg(
        left + WIDE + 8, top + HIGH + 8, parts, f"The mask {name}: {NAMED_MASKS[name].summary}."
    )


def random_mask(name: str) -> str:
    """Some draws of a random mask, as training makes them by default."""
    left, top, between = 92, 34, 34
    mask = training_mask(replace(TrainConfig(), mask=name))
    drawn = mask(MODALITIES, T, DRAWS, np.random.default_rng(1))
    parts = [_row_names(left - 12, top)]
    for i, visible in enumerate(drawn):
        corner = left + i * (WIDE + between), top
        parts += [_grid(corner, visible, np.zeros_like(visible)), _times((corner[0], top - 10))]
    width = left + DRAWS * (WIDE + between) - between + 8
    return _svg(width, top + HIGH + 8, parts, f"{DRAWS} draws of the training mask {name}.")


def network() -> str:
    """The encoder reads the visible tokens, the decoder answers for all."""
    visible = NAMED_MASKS["fd"].question(MODALITIES, T).visible
    side, top, box, gap = 34, 46, 156, 42
    x = [float(side)]
    for wide in (WIDE, box, CELL, box):
        x.append(x[-1] + wide + gap)
    middle, below = top + HIGH / 2, top + HIGH + 30
    parts = [
        _text(x[0] + WIDE / 2, 24, "a segment", "word"),
        _grid((x[0], top), visible, np.zeros_like(visible)),
        _text(x[0] + WIDE / 2, below, "a token for each value", "note"),
        _box(x[1], top, box, HIGH, ("encoder", "visible tokens only"), SHOWN),
        _text(x[2] + CELL / 2, 24, "latent", "word"),
        *_latent(x[2], top, np.sort(visible.ravel())[::-1]),
        _text(x[2] + CELL / 2, below, "with mask tokens", "note"),
        _box(x[3], top, box, HIGH, ("decoder", "all tokens"), SHOWN),
        _text(x[4] + WIDE / 2, 24, "every token, predicted", "word"),
        _grid((x[4], top), visible, ~visible, answered=True),
        _text(x[4] + WIDE / 2, below, "and how far off it may be", "note"),
    ]
    for i, wide in enumerate((WIDE, box, CELL, box)):
        parts.append(_arrow(x[i] + wide + 8, x[i + 1] - 8, middle))
    about = (
        "The encoder reads the visible tokens; the decoder adds mask tokens and answers for all."
    )
    return _svg(x[4] + WIDE + side, below + 14, parts, about)


def _latent(x: float, top: float, shown: BoolArray) -> list[str]:
    """A bar per token: solid where the encoder made it, hollow where a mask token stands."""
    high = (HIGH - 4 * (len(shown) - 1)) / len(shown)
    return [
        _rectangle((x, top + i * (high + 4)), (CELL, high), 3, _solid(SHOWN) if visible else HOLLOW)
        for i, visible in enumerate(shown)
    ]


def icon(shown: str) -> str:
    """Four tokens: the sign of the site."""
    corners = [(0, 0), (STEP, 0), (0, STEP), (STEP, STEP)]
    parts = [_cell(corner, shown) for corner in corners[:3]] + [_cell(corners[3], ASKED)]
    return _svg(2 * STEP - GAP, 2 * STEP - GAP, parts, "mtm")


def pictures() -> dict[str, str]:
    """File name -> the picture."""
    random = [name for name in NAMES if name not in NAMED_MASKS]
    return {
        "icon.svg": icon(SHOWN),
        "logo.svg": icon(LIGHT),  # on the coloured bar
        "idea.svg": idea(),
        "network.svg": network(),
        **{f"mask-{name}.svg": capability(name) for name in NAMED_MASKS},
        **{f"mask-{name}.svg": random_mask(name) for name in random},
    }


def main(words: Sequence[str]) -> int:
    """Write the pictures, or compare them with those that are there."""
    stale = []
    for name, text in pictures().items():
        file = IMAGES / name
        if "--check" not in words:
            file.write_text(text)
        elif not file.exists() or file.read_text() != text:
            stale.append(name)
    if stale:
        print(f"not as drawn now: {', '.join(stale)}. Run: python docs/draw_pictures.py")
    return 1 if stale else 0


def _grid(
    corner: tuple[float, float],
    visible: BoolArray,
    wanted: BoolArray,
    *,
    answered: bool = False,
) -> str:
    """Tokens as cells, a row per modality; what is wanted is a question, or its answer."""
    glyphs = (_pose, _return, _torque)
    cells = []
    for m, glyph in enumerate(glyphs):
        for t in range(T):
            place = corner[0] + t * STEP, corner[1] + m * STEP
            if visible[t, m]:
                cells += [_cell(place, SHOWN), _at(place, glyph(t))]
            elif wanted[t, m]:
                cells += [_cell(place, ASKED), _at(place, glyph(t) if answered else _mark())]
            else:
                cells += [_cell(place, None)]
    return "\n".join(cells)


def _legend(corner: tuple[float, float], entries: Iterable[tuple[str, str]]) -> str:
    x, y = corner
    parts = []
    for kind, word in entries:
        paint = {"shown": _solid(SHOWN), "asked": _solid(ASKED)}.get(kind, HOLLOW)
        parts += [
            _rectangle((x, y - 14), (18, 18), 4, paint),
            _text(x + 27, y + 1, word, "word", anchor="start"),
        ]
        x += 27 + 10.5 * len(word) + 26
    return "\n".join(parts)


def _row_names(right: float, top: float) -> str:
    return "\n".join(
        _text(right, top + i * STEP + CELL / 2 + 6, m.name, "word", anchor="end")
        for i, m in enumerate(MODALITIES)
    )


def _times(corner: tuple[float, float]) -> str:
    x, y = corner
    words = ("t=0", *(str(t) for t in range(1, T)))
    return "\n".join(_text(x + t * STEP + CELL / 2, y, w, "note") for t, w in enumerate(words))


def _box(x: float, y: float, wide: float, high: float, words: tuple[str, str], fill: str) -> str:
    title, note = words
    middle = y + high / 2
    return "\n".join(
        [
            _rectangle((x, y), (wide, high), 14, _solid(fill)),
            _text(x + wide / 2, middle - 3, title, "name", fill=LIGHT),
            _text(x + wide / 2, middle + 20, note, "note", fill=LIGHT),
        ]
    )


def _cell(corner: tuple[float, float], fill: str | None) -> str:
    x, y = corner
    if fill is None:
        return _rectangle((x + 1, y + 1), (CELL - 2, CELL - 2), 8, HOLLOW)
    return _rectangle(corner, (CELL, CELL), 9, _solid(fill))


def _rectangle(
    corner: tuple[float, float], size: tuple[float, float], radius: float, paint: str
) -> str:
    (x, y), (wide, high) = corner, size
    place = f'x="{_n(x)}" y="{_n(y)}" width="{_n(wide)}" height="{_n(high)}"'
    return f'<rect {place} rx="{_n(radius)}" {paint}/>'


def _solid(colour: str) -> str:
    return f'fill="{colour}"'


def _pose(t: int) -> str:
    joints = POSES[t]
    line = " ".join(f"{x},{y}" for x, y in joints)
    x, y = joints[-1]
    return (
        f'<polyline points="{line}" fill="none" stroke="{LIGHT}" stroke-width="3" '
        f'stroke-linecap="round" stroke-linejoin="round"/>'
        f'<circle cx="{x}" cy="{y}" r="3.4" fill="{LIGHT}"/>'
    )


def _return(t: int) -> str:
    return _text(CELL / 2, CELL / 2 + 6, RETURNS[t], "word", fill=LIGHT)


def _torque(t: int) -> str:
    middle = CELL / 2
    bars = [
        _rectangle((9 + 9 * i, middle - max(height, 0)), (6, abs(height)), 1.5, _solid(LIGHT))
        for i, height in enumerate(TORQUES[t])
    ]
    axis = (
        f'<path d="M7 {_n(middle)}H35" stroke="{LIGHT}" stroke-opacity="0.6" stroke-width="1.5"/>'
    )
    return axis + "".join(bars)


def _mark() -> str:
    return _text(CELL / 2, CELL / 2 + 8, "?", "name ask", fill=LIGHT)


def _flow(x: float, top: float, bottom: float, colour: str) -> str:
    head = (
        f'<path d="M{_n(x - 6)} {_n(bottom - 7)}L{_n(x)} {_n(bottom)}L{_n(x + 6)} {_n(bottom - 7)}"'
    )
    return (
        f'<path class="flow" d="M{_n(x)} {_n(top)}V{_n(bottom - 4)}" stroke="{colour}"/>'
        f'{head} fill="none" stroke="{colour}" stroke-width="2.5" stroke-linecap="round"/>'
    )


def _arrow(left: float, right: float, y: float) -> str:
    return (
        f'<path d="M{_n(left)} {_n(y)}H{_n(right)}M{_n(right - 7)} {_n(y - 6)}L{_n(right)} {_n(y)}'
        f'L{_n(right - 7)} {_n(y + 6)}" fill="none" stroke="{GREY}" stroke-width="2.5" '
        'stroke-linecap="round" stroke-linejoin="round"/>'
    )


def _text(
    x: float, y: float, words: str, kind: str, *, anchor: str = "middle", fill: str = ""
) -> str:
    colour = f' style="fill:{fill}"' if fill else ""
    place = f'x="{_n(x)}" y="{_n(y)}" text-anchor="{anchor}"'
    return f'<text {place} class="{kind}"{colour}>{words}</text>'


def _at(corner: tuple[float, float], drawn: str) -> str:
    return f'<g transform="translate({_n(corner[0])} {_n(corner[1])})">{drawn}</g>'


def _svg(width: float, height: float, parts: Iterable[str], about: str) -> str:
    lines = "\n".join(parts)
    size = f'viewBox="0 0 {_n(width)} {_n(height)}" width="{_n(width)}" height="{_n(height)}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">\n<title>{about}</title>\n'
        f"<style>{STYLE}</style>\n{lines}\n</svg>\n"
    )


def _n(number: float) -> str:
    """As short as it can be, so that the files do not depend on how a machine rounds."""
    return f"{number:.1f}".rstrip("0").rstrip(".")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
