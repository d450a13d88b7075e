"""What all charts of a report share: how they are made, named and drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simkit.report import svg
from simkit.report.words import harmless, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDTH = 7.4  # inches
_LONGEST = 26  # signs of a name in a chart


@dataclass(frozen=True)
class Chart:
    """A figure for pages and notebooks: `svg`, what it shows (`title`, `about`), and the same as text (`header`, `rows`)."""

    name: str
    title: str
    about: str
    svg: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]

    def __repr__(self) -> str:
        return f"<Chart {self.name}: {self.title}>"

    def _repr_html_(self) -> str:
        from simkit.report.html import chart_fragment

        return chart_fragment(self)

    def save(self, path: str) -> None:
        """Write the figure as an SVG file."""
        from simkit.files import write_text

        drawing = self.svg.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
        write_text(path, drawing + "\n")


Draw = Callable[["Figure"], None]


def make(
    name: str, title: str, about: str, height: float, draw: Draw, table: tuple[Sequence[str], Sequence[Any]]
) -> Chart:
    with svg.style():
        figure = svg.new(_WIDTH, height)
        draw(figure)
    header, rows = table
    return Chart(
        name, title, about, svg.render(figure, name, title), header, [[str(cell) for cell in row] for row in rows]
    )


def label(name: str) -> str:
    """A name in a chart: one short line, and none that matplotlib would keep out of a legend."""
    text = short(harmless(name), _LONGEST)
    return f" {text}" if text.startswith("_") else text


def look(place: int) -> dict[str, Any]:
    """Colour, dash and marker of the policy at this place: any one of them tells it from the others."""
    which = place % len(svg.PALETTE)
    return {"color": svg.PALETTE[which], "linestyle": svg.DASHES[which]}


def dots(place: int) -> dict[str, Any]:
    """The same colour with a marker, for points with error bars."""
    which = place % len(svg.PALETTE)
    return {"color": svg.PALETTE[which], "fmt": svg.MARKERS[which], "markersize": 5.5}


def legend(figure: Figure, axes: Axes, columns: int = 3) -> None:
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside upper left", ncols=min(columns, len(handles)))


def plain_numbers(axis: Any) -> None:
    """``10,000`` instead of ``1e4``."""
    axis.set_major_formatter(lambda value, _: f"{value:,.6g}")
