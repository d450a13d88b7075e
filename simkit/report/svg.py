"""Matplotlib figures as SVG that sits in a page: same bytes every time, text stays text, colours of text and lines follow the page."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, FAINT = "#010203", "#040506"
"""Stand-ins for the colours of text and of grid lines: the page's own take their place."""

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", INK)
"""Okabe and Ito's colours (told apart with any colour vision), without the yellow that is lost on white."""
DASHES: tuple[Any, ...] = (
    "-",
    (0, (5, 2)),
    (0, (1, 1.4)),
    (0, (6, 2, 1.5, 2)),
    (0, (8, 3)),
    (0, (3, 1.5, 1, 1.5, 1, 1.5)),
    "-",
)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
HATCHES = ("", "////", "\\\\\\\\", "----", "||||", "xxxx", "++++")

_STYLE: Any = {
    "svg.fonttype": "none", "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans"], "font.size": 9.5, "text.parse_math": False,
    "axes.edgecolor": INK, "axes.labelcolor": INK, "axes.titlecolor": INK, "text.color": INK, "xtick.color": INK, "ytick.color": INK,
    "axes.spines.top": False, "axes.spines.right": False, "axes.linewidth": 0.8, "axes.grid": True, "grid.color": FAINT,
    "grid.linewidth": 0.6, "axes.axisbelow": True, "lines.linewidth": 1.7, "legend.frameon": False, "legend.fontsize": 9,
    "axes.titlesize": 10, "axes.titlelocation": "left", "hatch.linewidth": 0.7, "axes.formatter.use_mathtext": False,
    "axes.unicode_minus": True, "figure.facecolor": "none", "axes.facecolor": "none", "savefig.facecolor": "none",
    "legend.handlelength": 2.6, "timezone": "UTC",
}  # fmt: skip


@contextmanager
def style() -> Iterator[None]:
    """Matplotlib's settings for a figure of ours, whatever the user has set."""
    import matplotlib as mpl

    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_STYLE)
        yield


def new(width: float, height: float) -> Figure:
    """An empty figure (inches) that no window knows of."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasSVG(figure)
    return figure


def render(figure: Figure, name: str, title: str) -> str:
    """The figure as an ``<svg>`` element with ids of its own (`name`), scaling with its place, described by `title` (escaped here)."""
    import matplotlib as mpl

    buffer = io.StringIO()
    with style(), warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="Glyph .* missing", category=UserWarning
        )  # the page's fonts have it, or show a box
        mpl.rcParams["svg.hashsalt"] = f"simkit-{name}"
        figure.savefig(buffer, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    return inline(buffer.getvalue(), name, title)


def inline(document: str, name: str, title: str) -> str:
    """Matplotlib's SVG document made fit for a page."""
    from markupsafe import escape

    text = document[document.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.DOTALL)
    text = text.replace("xlink:href", "href")
    referenced = set(re.findall(r'(?:href="#|url\(#)([^")]+)', text))
    text = re.sub(r' id="([^"]*)"', lambda found: f' id="{name}-{found[1]}"' if found[1] in referenced else "", text)
    text = re.sub(r'(href="#|url\(#)', rf"\g<1>{name}-", text)
    text = re.sub(r"font: ((?:[a-z0-9]+ )*[0-9.]+px)[^;\"]*", r"font: \1 system-ui, sans-serif", text)
    text = re.sub(INK, "currentColor", text, flags=re.IGNORECASE)
    for place, colour in enumerate(PALETTE[:6]):  # the page may lighten them on a dark ground
        text = re.sub(colour, f"var(--c{place}, {colour})", text, flags=re.IGNORECASE)
    text = re.sub(FAINT, "var(--grid, #8884)", text, flags=re.IGNORECASE)
    box = re.search(r'viewBox="[^"]*"', text)
    assert box is not None
    head = f'<svg {box[0]} role="img" aria-label="{escape(title)}" preserveAspectRatio="xMinYMin meet">'
    return re.sub(r"<svg[^>]*>", lambda _: f"{head}<title>{escape(title)}</title>", text, count=1).strip()
