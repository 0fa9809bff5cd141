"""Pages of aggregates, without files: what ``report.html`` says and what stands above and below its figures."""

from collections.abc import Mapping
from typing import Any

from connector_tax.base.documents.aggregate import aggregate_of
from connector_tax.base.documents.figures import Entry, Files
from connector_tax.read.figures.draw_all import FIGURES
from connector_tax.read.figures.style import Drawn, drawing_style
from connector_tax.read.figures.words import TITLE_LIMIT, clean
from connector_tax.read.report.page import Figure, render
from connector_tax.read.report.view import Page, page_view


def view_of(aggregate: Mapping[str, Any]) -> Page:
    """What the page shows of the JSON of an aggregate."""
    return page_view(aggregate_of(aggregate), None)


def text_of(aggregate: Mapping[str, Any]) -> str:
    """The page without figures."""
    return render(view_of(aggregate), [])


def page_of(aggregate: Mapping[str, Any]) -> str:
    """The page with every figure that can be drawn, each without its picture."""
    return render(view_of(aggregate), [_figure(name, aggregate) for name in FIGURES])


def _figure(name: str, aggregate: Mapping[str, Any]) -> Figure:
    with drawing_style(name):
        found = FIGURES[name](aggregate_of(aggregate))
    number = int(name[3])
    if not isinstance(found, Drawn):
        return Figure(Entry(name=name, number=number, drawn=False, reason=clean(found.reason)))
    files = Files(svg=f"{name}.svg", csv=f"{name}.csv")
    title, caption = clean(found.title, TITLE_LIMIT), clean(found.caption, 4000)
    return Figure(Entry(name=name, number=number, drawn=True, title=title, caption=caption, files=files))
