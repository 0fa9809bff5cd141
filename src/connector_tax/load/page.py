"""One self-contained HTML page of a load run: numbers with intervals, and the latency of every request over
time."""

from base64 import b64encode
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from connector_tax.base.documents.load import Found, Level, LoadCell, Summary
from connector_tax.base.records.cell import CellWindow
from connector_tax.base.records.request import RequestRecord
from connector_tax.base.statistics.cell import in_window
from connector_tax.base.templates import template
from connector_tax.load.demand import saturated
from connector_tax.load.measured import worded
from connector_tax.load.plan import Load
from connector_tax.load.table import NAMES, summary_rows, view
from connector_tax.read.figures.style import drawing_style, new_figure, plain_log_axis, rate_axis

TEMPLATE = Path(__file__).with_name("load.html.j2")
STYLE = Path(__file__).parents[1] / "read" / "report" / "report.css"
COLOURS = {"ttft_ms": "#0072B2", "e2e_ms": "#D55E00"}
# More points than this are drawn as many, evenly chosen; the page says so.
MOST_POINTS = 4000


def page(summary: Summary, load: Load | None, pictures: Sequence[str]) -> str:
    """
    Args:
        load: what was asked for; None says nothing of it.
        pictures: data URLs, one per cell.
    """
    found, cells = summary.search, summary.cells
    return template(TEMPLATE).render(
        summary=summary,
        load=load,
        style=STYLE.read_text(),
        found_lines=[] if found is None else found_lines(found),
        cells=[{**view(cell), "picture": picture} for cell, picture in zip(cells, pictures, strict=True)],
        rows=summary_rows(cells),
        curves=rate_curves(cells),
        most_points=MOST_POINTS,
    )


def found_lines(found: Found) -> list[str]:
    """What a search came to."""
    known, fails = found.highest_per_s is not None, found.fails_per_s is not None
    capped = ", ".join(f"{j.rate_per_s:g}" for j in found.judged if j.capped)
    unsure = ", ".join(f"{j.rate_per_s:g}" for j in found.judged if not j.sure and not j.capped)
    words = worded(
        (known and fails, "highest", found),
        (known and not fails, "highest_measured", found),
        (not known and found.judged, "none_holds"),
        (not found.judged, "none_judged"),
        (unsure, "unsure", unsure, found.unit),
        (capped, "capped", capped, found.unit),
        (not found.monotonic, "not_monotonic"),
        (found.stopped, "stopped", found.stopped),
    )
    return list(words.values())


def picture(cell: LoadCell, requests: Sequence[RequestRecord]) -> str:
    """Latencies over time, as the data URL of a PNG."""
    window = cell.window
    chosen = in_window(requests, window)
    with drawing_style(cell.cell_id):
        figure = new_figure(9.0, 3.0)
        _over_time(figure.subplots(), chosen, window)
        return _data_url(figure, "png", {"Software": None})


def rate_curves(cells: Sequence[LoadCell]) -> list[str]:
    """Draw p50 and p90 of TTFT and of TPOT against the offered rate, each as the data URL of an SVG; none
    where there is no second rate."""
    at_rates = sorted((cell for cell in cells if cell.rate_per_s), key=lambda cell: cell.rate_per_s or 0.0)
    rates = {cell.rate_per_s or 0.0: saturated(cell) for cell in at_rates}
    loads: dict[str, list[LoadCell]] = {}
    for cell in at_rates:
        loads.setdefault(cell.cell_id.partition("_")[2], []).append(cell)
    return [_rate_curve(metric, rates, loads) for metric in ("ttft_ms", "tpot_ms")] if len(rates) > 1 else []


def _rate_curve(metric: str, rates: dict[float, bool], loads: dict[str, list[LoadCell]]) -> str:
    with drawing_style(metric):
        figure = new_figure(4.6, 3.2)
        axes = figure.subplots()
        for k, (load, cells) in enumerate(loads.items()):
            for q, line in (("p50", "o-"), ("p90", "s--")):
                levels = [cell.latencies[metric].get(q, Level(None)).point for cell in cells]
                values, name = np.array(levels, dtype=np.float64), f"{load} {q}" if len(loads) > 1 else q
                axes.plot([cell.rate_per_s or 0.0 for cell in cells], values, line, color=f"C{k}", label=name)
        for rate in (rate for rate, full in rates.items() if full):
            axes.axvline(rate, color="#A02020", linestyle=":", label="saturated")
        ticks: list[float] = []
        for rate in rates:
            # A closer one would be written over the last.
            ticks += [rate] * (not ticks or rate > 1.3 * ticks[-1])
        rate_axis(axes, ticks)
        plain_log_axis(axes)
        axes.set_xlabel("offered rate, per second")
        axes.set_ylabel(f"{NAMES[metric]}, ms")
        keys = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
        axes.legend(keys.values(), keys.keys(), loc="best", frameon=True, framealpha=0.9)
        return _data_url(figure, "svg", {"Date": None})


def _data_url(figure: Figure, form: str, metadata: dict[str, str | None]) -> str:
    buffer = BytesIO()
    figure.savefig(buffer, format=form, metadata=metadata)
    # Markup, since a template cuts long text.
    kind = {"svg": "svg+xml"}.get(form, form)
    return Markup("data:image/") + f"{kind};base64,{b64encode(buffer.getvalue()).decode()}"


def _over_time(axes: Axes, chosen: Sequence[RequestRecord], window: CellWindow) -> None:
    shown = chosen[:: -(-len(chosen) // MOST_POINTS) or 1]
    at_s = np.array([(r.t_sched_ns - window.window_start_ns) / 1e9 for r in shown])
    for name in ("e2e", "ttft"):
        # Of one that has no such latency nothing is drawn.
        values = np.array([getattr(r, f"{name}_ns") for r in shown], dtype=np.float64) / 1e6
        if np.isfinite(values).any():
            key = f"{name}_ms"
            axes.plot(at_s, values, ".", markersize=2.5, color=COLOURS[key], label=NAMES[key])
    failed = at_s[np.array([r.status != "ok" for r in shown], dtype=bool)]
    if failed.size:
        low = axes.get_ylim()[0] or 1.0
        axes.plot(failed, np.full(failed.size, low), "x", markersize=4, color="#A02020", label="failed")
    axes.set_xlabel("scheduled, seconds after the window's start")
    axes.set_ylabel("latency, ms")
    if axes.lines:
        plain_log_axis(axes)
        axes.legend(loc="best", markerscale=3, frameon=True, framealpha=0.9)
