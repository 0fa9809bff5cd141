"""Pages of aggregates, without files: what ``report.html`` says and what stands above and below its figures."""

from collections.abc import Mapping
from typing import Any

from connector_tax.base.documents.aggregate import aggregate_of
from connector_tax.read.figures.draw_all import FIGURES
from connector_tax.read.figures.style import Drawn, drawing_style
from connector_tax.read.figures.words import TITLE_LIMIT, clean
from connector_tax.read.report.page import render
from connector_tax.read.report.view import page_view


def page_of(aggregate: Mapping[str, Any]) -> str:
    """The page with every figure that can be drawn, each without its picture."""
    return render(
        {**page_view(aggregate, {}, "abcd"), "figures": [_figure(name, aggregate) for name in FIGURES]}
    )


def _figure(name: str, aggregate: Mapping[str, Any]) -> dict[str, Any]:
    with drawing_style(name):
        found = FIGURES[name](aggregate_of(aggregate))
    entry: dict[str, Any] = {
        "name": name,
        "number": int(name[3]),
        "drawn": isinstance(found, Drawn),
        "uri": "",
    }
    if not isinstance(found, Drawn):
        return entry | {"reason": clean(found.reason)}
    files = {"svg": f"{name}.svg", "csv": f"{name}.csv"}
    return entry | {
        "title": clean(found.title, TITLE_LIMIT),
        "caption": clean(found.caption, 4000),
        "files": files,
    }
