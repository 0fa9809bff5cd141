"""One self-contained HTML page of a load run: numbers with intervals, the latency of every request over time, distributions."""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import jinja2
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from connector_tax.base.documents.load import LATENCIES, Found, LoadCell
from connector_tax.base.records.cell import CellWindow
from connector_tax.base.records.request import RequestRecord
from connector_tax.base.statistics.cell import in_window, latencies_ms
from connector_tax.load.table import (
    NAMES,
    asked_text,
    failure_lines,
    level_text,
    open_reasons,
    summary_rows,
    unavailable_lines,
)
from connector_tax.read.figures.style import drawing_style, new_figure, plain_log_axis

FOLDER = Path(__file__).parent
STYLE = Path(__file__).parents[1] / "read" / "report" / "report.css"
COLOURS = {"ttft_ms": "#0072B2", "e2e_ms": "#D55E00", "tpot_ms": "#009E73"}
# More points than this are drawn as many, evenly chosen; the page says so.
MOST_POINTS = 4000


def page(
    title: str,
    facts: Sequence[tuple[str, str]],
    cells: Sequence[LoadCell],
    pictures: Sequence[str],
    found: Found | None,
) -> str:
    """
    Args:
        facts: what the run was: name and value.
        pictures: data URLs, one per cell.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER), autoescape=True, undefined=jinja2.StrictUndefined
    )
    return environment.get_template("load.html.j2").render(
        title=title,
        facts=facts,
        style=STYLE.read_text(),
        found=found,
        cells=[_view(cell, picture) for cell, picture in zip(cells, pictures, strict=True)],
        summary=summary_rows(cells),
        percentiles=[q.removeprefix("p") for q in cells[0].latencies["e2e_ms"]] if cells else [],
    )


def picture(cell: LoadCell, requests: Sequence[RequestRecord]) -> str:
    """Latencies over time and their distributions, as the data URL of a PNG."""
    window = cell.window
    chosen = in_window(requests, window)
    with drawing_style(cell.cell_id):
        figure = new_figure(9.0, 3.0)
        over_time, spread = figure.subplots(1, 2)
        _over_time(over_time, chosen, window)
        _spread(spread, chosen)
        buffer = BytesIO()
        figure.savefig(buffer, format="png", metadata={"Software": None})
    return "data:image/png;base64," + b64encode(buffer.getvalue()).decode()


def _over_time(axes: Axes, chosen: Sequence[RequestRecord], window: CellWindow) -> None:
    shown = chosen[:: -(-len(chosen) // MOST_POINTS) or 1] if chosen else []
    for name in ("e2e_ms", "ttft_ms"):
        points = [
            ((r.t_sched_ns - window.window_start_ns) / 1e9, values[0])
            for r in shown
            if (values := latencies_ms([r])[name]) and np.isfinite(values[0])
        ]
        if points:
            axes.plot(*zip(*points, strict=True), ".", markersize=2.5, color=COLOURS[name], label=NAMES[name])
    failed = [(r.t_sched_ns - window.window_start_ns) / 1e9 for r in shown if r.status != "ok"]
    if failed:
        axes.plot(
            failed,
            [axes.get_ylim()[0] or 1.0] * len(failed),
            "x",
            markersize=4,
            color="#A02020",
            label="failed",
        )
    axes.set_xlabel("scheduled, seconds after the window's start")
    axes.set_ylabel("latency, ms")
    if axes.lines:
        plain_log_axis(axes)
        axes.legend(loc="best", markerscale=3, frameon=True, framealpha=0.9)


def _spread(axes: Axes, chosen: Sequence[RequestRecord]) -> None:
    found = latencies_ms(chosen)
    for name in ("ttft_ms", "tpot_ms", "e2e_ms"):
        values = np.sort(np.asarray(found[name], dtype=np.float64))
        finite = values[np.isfinite(values)]
        if finite.size:
            # Requests that failed keep their share: the curve ends below 100 %.
            axes.step(
                finite,
                np.arange(1, finite.size + 1) / values.size * 100,
                where="post",
                color=COLOURS[name],
                label=NAMES[name],
            )
    axes.set_xlabel("latency, ms")
    axes.set_ylabel("% of requests, at most")
    axes.set_ylim(0, 102)
    if axes.lines:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
        axes.xaxis.set_minor_formatter(
            FuncFormatter(lambda v, _: f"{v:,.10g}" if f"{v:.0e}"[0] in "25" else "")
        )
        axes.legend(loc="best", frameon=True, framealpha=0.9)


@dataclass(frozen=True, slots=True)
class _View:
    """A cell as the template asks for it.

    Attributes:
        picture: a data URL.
        failed: requests by status, of those that did not end well.
        rows: of each latency its name and its percentiles.
        missing, without: why a latency has no number, or no interval.
        remarks: how requests failed, and what else is to be known.
        share: of good requests; None where none was asked for.
        late_us: of the client's sends, by percentile.
        thinned: not every request is drawn.
    """

    cell: LoadCell
    picture: str
    failed: dict[str, int]
    rows: list[tuple[str, list[str]]]
    asked: str
    missing: list[str]
    without: list[str]
    remarks: list[str]
    share: str | None
    late_us: dict[str, float | None]
    thinned: bool


def _view(cell: LoadCell, drawn: str) -> _View:
    return _View(
        cell=cell,
        picture=drawn,
        failed={status: n for status, n in cell.requests.items() if status not in ("window", "ok")},
        rows=[(NAMES[name], [level_text(v) for v in cell.latencies[name].values()]) for name in LATENCIES],
        asked=asked_text(cell),
        missing=unavailable_lines(cell),
        without=open_reasons(cell),
        remarks=[*failure_lines(cell), *cell.remarks],
        share=None if cell.goodput is None else level_text(cell.goodput.share, 100),
        late_us=cell.health.dispatch_lateness_us or {},
        thinned=cell.requests["window"] > MOST_POINTS,
    )
