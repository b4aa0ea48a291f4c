"""A small picture as SVG: boxes, lines and text. Equal calls give equal bytes."""

from __future__ import annotations

from html import escape

_TEXT = "#222222"
_LINE = "#444444"
_SIZE = 12


class Drawing:
    """Collects the elements of a picture with a white background.

    Args:
        width: in pixels.
        height: in pixels.
        title: what the picture shows, for programs that read pages aloud.
    """

    def __init__(self, width: int, height: int, title: str) -> None:
        self._width, self._height, self._title = width, height, title
        self._elements: list[str] = []

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        color: str,
        label: str,
        *,
        stroke: str = "#777777",
        size: int = _SIZE,
    ) -> None:
        """Draw a rectangle with a text in its middle."""
        self._rectangle(x, y, width, height, f'fill="{color}" stroke="{stroke}"')
        if label:
            self.text(x + width / 2, y + height / 2 + size * 0.36, label, middle=True, size=size)

    def frame(
        self, x: float, y: float, width: float, height: float, *, dashed: bool = False
    ) -> None:
        """Draw the border of a rectangle."""
        dashes = ' stroke-dasharray="6 4"' if dashed else ""
        self._rectangle(x, y, width, height, f'fill="none" stroke="{_LINE}" rx="4"{dashes}')

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        bold: bool = False,
        middle: bool = False,
        size: int = _SIZE,
    ) -> None:
        """Write one line that begins at x, or has its middle there."""
        more = ' font-weight="bold"' if bold else ""
        more += ' text-anchor="middle"' if middle else ""
        self._elements.append(
            f'<text x="{x:g}" y="{y:g}" font-size="{size}"{more}>{escape(text)}</text>'
        )

    def line(
        self, x: float, y: float, to_x: float, to_y: float, *, dashed: bool = False,
        thick: bool = False, arrow: bool = False,
    ) -> None:  # fmt: skip
        """Draw a line."""
        more = ' stroke-dasharray="4 4"' if dashed else ""
        more += ' marker-end="url(#arrow)"' if arrow else ""
        self._elements.append(
            f'<line x1="{x:g}" y1="{y:g}" x2="{to_x:g}" y2="{to_y:g}" stroke="{_LINE}" '
            f'stroke-width="{2.5 if thick else 1.2}"{more}/>'
        )

    def arrow(self, x: float, y: float, to_x: float, to_y: float, *, thick: bool = False) -> None:
        """Draw a line with a point at its end."""
        self.line(x, y, to_x, to_y, thick=thick, arrow=True)

    def svg(self, height: int | None = None) -> str:
        """Return the picture; with `height`, only its upper part."""
        size = f"{self._width} {height or self._height}"
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-6 0 {size}" role="img" '
            f'font-family="Helvetica, Arial, sans-serif" fill="{_TEXT}">',
            f"<title>{escape(self._title)}</title>",
            '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" '
            'markerHeight="9" markerUnits="userSpaceOnUse" orient="auto">'
            f'<path d="M0 0 L8 4 L0 8 z" fill="{_LINE}"/></marker></defs>',
            '<rect x="-6" width="100%" height="100%" fill="white"/>',
            *self._elements,
            "</svg>",
        ]
        return "".join(f"{line}\n" for line in lines)

    def _rectangle(self, x: float, y: float, width: float, height: float, more: str) -> None:
        place = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
        self._elements.append(f"<rect {place} {more}/>")
