"""Report pages of aggregates, without files."""

from collections.abc import Mapping
from typing import Any

from connector_tax.base.documents.aggregate import aggregate_of
from connector_tax.read.figures.draw_all import FIGURES, entry_of
from connector_tax.read.figures.style import drawing_style
from connector_tax.read.report.page import Figure, render
from connector_tax.read.report.view import Page, page_view


def view_of(aggregate: Mapping[str, Any]) -> Page:
    """Return what the page shows of an aggregate's JSON."""
    return page_view(aggregate_of(aggregate), None)


def text_of(aggregate: Mapping[str, Any]) -> str:
    return render(view_of(aggregate), [])


def page_of(aggregate: Mapping[str, Any]) -> str:
    """Return the page with every figure that can be drawn, each without its picture."""
    return render(view_of(aggregate), [_figure(name, aggregate) for name in FIGURES])


def _figure(name: str, aggregate: Mapping[str, Any]) -> Figure:
    with drawing_style(name):
        return Figure(entry_of(name, FIGURES[name](aggregate_of(aggregate))))
