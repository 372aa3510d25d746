"""Drawings of a tree of boxes: Graphviz text, and SVG laid out here.

The layout is layered: a box's depth is its row, leaves stand side by side, a parent stands over the middle of its
inputs. Rows flow upwards, so every edge is labelled and coloured with the pattern of the box it leaves.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

COLOURS = {"monotonic": "#2f7d4f", "weakest": "#1f6fb2", "weak": "#b7791f", "strict": "#b3261e"}
"""One colour per pattern, dark enough for text on white."""

TITLE, BODY = 13, 11  # font sizes
TITLE_WIDE, BODY_WIDE = 7.8, 6.2  # mean width of a character, a little generous
LINE, PAD, GAP_X, GAP_Y, MARGIN = 15, 10, 26, 52, 24
WRAP = 44  # characters per line in a box


@dataclass(frozen=True)
class Box:
    """A box: its title, its lines, the pattern of its output edge, and the boxes that feed it."""

    title: str
    lines: tuple[str, ...]
    pattern: str
    inputs: tuple[Box, ...] = ()


@dataclass(frozen=True)
class Placed:
    """A box with its place: left, top, width, height."""

    box: Box
    lines: tuple[str, ...]
    x: float
    y: float
    width: float
    height: float
    inputs: tuple[Placed, ...]

    @property
    def middle(self) -> float:
        return self.x + self.width / 2


def dot(root: Box, header: Sequence[str]) -> str:
    """Graphviz text.

    >>> print(dot(Box("scan", ("s",), "monotonic"), ["q"]).splitlines()[0])
    digraph plan {
    """
    out = ["digraph plan {", "  rankdir=BT;", f"  label={_dot_text(list(header))};", "  labelloc=t;"]
    out.append('  node [shape=box, style=rounded, fontname="Helvetica", fontsize=11];')
    out.append('  edge [fontname="Helvetica", fontsize=10];')
    numbered = {id(b): i for i, b in enumerate(_all(root))}
    for b in _all(root):
        colour = COLOURS[b.pattern]
        wrapped = [w for line in b.lines for w in _wrap(line)]
        out.append(f'  n{numbered[id(b)]} [label={_dot_text([b.title, *wrapped])}, color="{colour}"];')
        for i in b.inputs:
            colour = COLOURS[i.pattern]
            edge = f"n{numbered[id(i)]} -> n{numbered[id(b)]}"
            out.append(f'  {edge} [label="{i.pattern}", color="{colour}", fontcolor="{colour}"];')
    return "\n".join([*out, "}", ""])


def _dot_text(lines: Sequence[str]) -> str:
    escaped = (line.replace("\\", "\\\\").replace('"', '\\"') for line in lines)
    return '"' + "\\n".join(escaped) + '"'


def _all(root: Box) -> Iterator[Box]:
    yield root
    for i in root.inputs:
        yield from _all(i)


def svg(root: Box, header: Sequence[str]) -> str:
    """A complete SVG document."""
    wrapped = [line for h in header for line in textwrap.wrap(h, 96, subsequent_indent="    ") or [""]]
    top = MARGIN + LINE * (len(wrapped) + 2)
    rows = _row_tops(root, top)
    placed, right = _place(root, MARGIN, 0, rows)
    width = max(right, MARGIN + max(len(h) for h in wrapped) * TITLE_WIDE) + MARGIN
    height = rows[-1] + MARGIN - GAP_Y
    body = [*_header(wrapped), *_legend(MARGIN, MARGIN + LINE * len(wrapped) + 8)]
    body += [line for p in _placed(placed) for line in _edges(p)]
    body += [line for p in _placed(placed) for line in _draw(p)]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="Helvetica, Arial, sans-serif">',
            '<rect width="100%" height="100%" fill="white"/>',
            *body,
            "</svg>",
            "",
        ]
    )


def _wrap(line: str) -> list[str]:
    return textwrap.wrap(line, WRAP, break_long_words=True) or [""]


def _lines(box: Box) -> tuple[str, ...]:
    return tuple(w for line in box.lines for w in _wrap(line))


def _size(box: Box) -> tuple[float, float]:
    lines = _lines(box)
    text = max([len(box.title) * TITLE_WIDE, *(len(line) * BODY_WIDE for line in lines)])
    return text + 2 * PAD, LINE * (1 + len(lines)) + 2 * PAD - 4


def _row_tops(root: Box, top: float) -> list[float]:
    """The top of each row, and one more below the last."""
    tops, row = [top], [root]
    while row:
        tops.append(tops[-1] + max(_size(b)[1] for b in row) + GAP_Y)
        row = [i for b in row for i in b.inputs]
    return tops


def _place(box: Box, left: float, depth: int, rows: Sequence[float]) -> tuple[Placed, float]:
    """The box and all below it, from `left` on, and where they end."""
    width, height = _size(box)
    placed: list[Placed] = []
    spread = sum(_span(i) for i in box.inputs) + GAP_X * max(0, len(box.inputs) - 1)
    at = left + max(0.0, (width - spread) / 2)
    for i in box.inputs:
        child, end = _place(i, at, depth + 1, rows)
        placed.append(child)
        at = end + GAP_X
    span = max(width, spread)
    middle = (placed[0].middle + placed[-1].middle) / 2 if placed else left + width / 2
    x = min(max(left, middle - width / 2), left + span - width)
    return Placed(box, _lines(box), x, rows[depth], width, height, tuple(placed)), left + span


def _span(box: Box) -> float:
    """The width of a box with all below it."""
    below = sum(_span(i) for i in box.inputs) + GAP_X * max(0, len(box.inputs) - 1)
    return max(_size(box)[0], below)


def _placed(p: Placed) -> Iterator[Placed]:
    yield p
    for i in p.inputs:
        yield from _placed(i)


def _text(x: float, y: float, text: str, **style: object) -> str:
    attributes = "".join(f' {k.replace("_", "-")}="{v}"' for k, v in style.items())
    return f'<text x="{x:.1f}" y="{y:.1f}"{attributes}>{escape(text)}</text>'


def _header(lines: Sequence[str]) -> Iterator[str]:
    for i, line in enumerate(lines):
        weight = "bold" if i == 0 else "normal"
        yield _text(MARGIN, MARGIN + LINE * i + 4, line, font_size=TITLE, font_weight=weight, fill="#222")


def _legend(x: float, y: float) -> Iterator[str]:
    for name, colour in COLOURS.items():
        yield f'<rect x="{x:.1f}" y="{y - 8:.1f}" width="18" height="4" rx="2" fill="{colour}"/>'
        yield _text(x + 24, y - 2, name, font_size=BODY, fill=colour)
        x += 40 + len(name) * BODY_WIDE


def _edges(p: Placed) -> Iterator[str]:
    """From the top of each input up to the bottom of the box; several inputs meet the box side by side."""
    for k, i in enumerate(p.inputs):
        colour = COLOURS[i.box.pattern]
        end_x = p.x + p.width * (k + 1) / (len(p.inputs) + 1) if len(p.inputs) > 1 else p.middle
        end_y, bend = p.y + p.height + 6, i.y - GAP_Y / 2
        curve = f"C {i.middle:.1f} {bend:.1f}, {end_x:.1f} {bend:.1f}, {end_x:.1f} {end_y:.1f}"
        yield f'<path d="M {i.middle:.1f} {i.y:.1f} {curve}" fill="none" stroke="{colour}" stroke-width="1.8"/>'
        yield f'<path d="M {end_x - 4:.1f} {end_y:.1f} h 8 l -4 -6 z" fill="{colour}"/>'
        side, anchor = (-7, "end") if end_x > i.middle + 1 else (7, "start")  # away from where the edge bends
        style = {"font_size": BODY, "font_style": "italic", "text_anchor": anchor, "fill": colour}
        yield _text(i.middle + side, i.y - 7, i.box.pattern, **style)


def _draw(p: Placed) -> Iterator[str]:
    colour = COLOURS[p.box.pattern]
    yield (
        f'<rect x="{p.x:.1f}" y="{p.y:.1f}" width="{p.width:.1f}" height="{p.height:.1f}" rx="6" '
        f'fill="#fafafa" stroke="{colour}" stroke-width="1.4"/>'
    )
    y = p.y + PAD + 8
    yield _text(p.middle, y, p.box.title, font_size=TITLE, font_weight="bold", text_anchor="middle", fill="#222")
    for n, line in enumerate(p.lines, 1):
        yield _text(p.middle, y + LINE * n, line, font_size=BODY, text_anchor="middle", fill="#444")
