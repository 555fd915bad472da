"""A treemap: rectangles with areas in proportion, as near to squares as they can be.

The squarified layout of Bruls, Huizing and van Wijk (2000): rows are filled along the shorter side
as long as the worst proportion in them gets better.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from nicegui import ui

# Drawn in a box of this shape; the browser stretches it a little.
WIDTH, HEIGHT = 100.0, 40.0
# Of more, tiles are too small to be read or hit; the table beside has all.
TILES_MAX = 250

Rectangle = tuple[float, float, float, float]


class Treemap(ui.element, component="assets/treemap.js"):
    """Tiles that lead somewhere."""

    def show(self, drawing: Mapping[str, Any]) -> None:
        """Show what `draw_tiles` has made."""
        if any(self.props.get(name) != value for name, value in drawing.items()):
            self.props.update(drawing)


def draw_tiles(label: str, tiles: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Lay out tiles: each `{name, note, href, tone, sign, size}`, with sizes above 0, and `tiles`
    where there are smaller ones in it. `label`: says what is drawn."""
    drawn = _draw(tiles, WIDTH, HEIGHT)
    return {"label": label, "tiles": drawn, "omitted": max(len(tiles) - TILES_MAX, 0)}


def _draw(tiles: Sequence[Mapping[str, Any]], width: float, height: float) -> list[dict[str, Any]]:
    """Lay out tiles in a box of a shape, and within each its own tiles; boxes are in percent of the
    one around."""
    largest = sorted(tiles, key=lambda each: -each["size"])[:TILES_MAX]
    places = lay_out([each["size"] for each in largest], width, height)
    drawn = []
    for tile, (left, top, wide, high) in zip(largest, places, strict=True):
        body = {name: tile[name] for name in ("name", "note", "href", "tone", "sign")}
        box = (left / width, top / height, wide / width, high / height)
        body["box"] = [round(100 * each, 3) for each in box]
        body["tiles"] = _draw(tile.get("tiles", ()), wide, high) if tile.get("tiles") else []
        drawn.append(body)
    return drawn


def lay_out(sizes: Sequence[float], width: float, height: float) -> list[Rectangle]:
    """Lay out areas in proportion to `sizes`, which fall, in a box: left, top, width, height."""
    total = sum(sizes)
    areas = [size / total * width * height for size in sizes] if total else []
    placed: list[Rectangle] = []
    left = top = 0.0
    start = 0
    while start < len(areas):
        side = min(width, height)
        end = start + 1
        worst = _worst(areas[start:end], side)
        while end < len(areas):
            following = _worst(areas[start : end + 1], side)
            if following > worst:
                break
            worst, end = following, end + 1
        row = areas[start:end]
        thick = sum(row) / side if side else 0.0
        offset = 0.0
        for area in row:
            long = area / thick if thick else 0.0
            if width >= height:
                placed.append((left, top + offset, thick, long))
            else:
                placed.append((left + offset, top, long, thick))
            offset += long
        if width >= height:
            left, width = left + thick, max(width - thick, 0.0)
        else:
            top, height = top + thick, max(height - thick, 0.0)
        start = end
    return placed


def _worst(row: Sequence[float], side: float) -> float:
    """The proportion of the longest rectangle in a row along a side."""
    total = sum(row)
    if not total or not side:
        return float("inf")
    return max(side**2 * max(row) / total**2, total**2 / (side**2 * min(row)))
