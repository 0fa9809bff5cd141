"""Formats the results of a load run: text of a cell, a table of all cells, ``summary.csv``, and one
self-contained HTML page with numbers, intervals and the latency of every request over time.
"""

import csv
import io
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure

from connector_tax.base.documents.load import LATENCIES, Found, Level, LoadCell, Summary
from connector_tax.base.records.request import RequestRecord
from connector_tax.base.statistics.cell import in_window
from connector_tax.base.statistics.digits import digits_apart
from connector_tax.base.templates import template
from connector_tax.base.units import duration_text
from connector_tax.load.measured import format_labels, saturated
from connector_tax.load.plan import Load
from connector_tax.read.figures.style import drawing_style, new_figure, plain_log_axis, rate_axis

HERE = Path(__file__).parent
NAMES = {"ttft_ms": "TTFT", "tpot_ms": "TPOT", "itl_ms": "ITL", "e2e_ms": "E2E"}
UNKNOWN = "-"
RED = "#A02020"
# Above this many points a picture draws an even selection; the page says so.
MOST_POINTS = 4000


def level_text(level: Level, scale: float = 1.0) -> str:
    """Format ``112 [110, 115]``; an unknown bound is a dash, a number without an interval stands alone."""
    values = [level.point, level.low, level.high]
    texts = iter(digits_apart([v * scale for v in values if v is not None]))
    point, low, high = (UNKNOWN if v is None else next(texts) for v in values)
    return point if level.low is None and level.high is None else f"{point} [{low}, {high}]"


def view(cell: LoadCell) -> dict[str, Any]:
    """Return a cell in the form that the text and page templates need."""
    missing: dict[str, dict[str, None]] = {}
    open_end_reasons = set()
    for name, levels in cell.latencies.items():
        for level in levels.values():
            if level.point is None:
                missing.setdefault(level.reason or "unavailable", {})[NAMES[name]] = None
            elif None in (level.low, level.high) and level.reason:
                open_end_reasons.add(level.reason)
    ramp, demand, rate = cell.spec.ramp_from_per_s, cell.demand, cell.rate_per_s
    # On a ramp the window's scheduled rate differs; the final rate is reached only at the window's end.
    ramped = ramp is not None and demand is not None and demand.over_s > 0
    seconds = cell.throughput.over_s
    return {
        "cell": cell,
        "over": f"{seconds:.2f} s" if seconds < 10 else duration_text(seconds),
        "asked": format_labels(
            (ramped, "ramped", demand, ramp, rate), (rate is not None and not ramped, "asked", rate)
        ).values(),
        # A latency that no request has, failed or not, has no row.
        "rows": [
            [NAMES[name], *map(level_text, cell.latencies[name].values())]
            for name in LATENCIES
            if any(v.point is not None or v.n for v in cell.latencies[name].values())
        ],
        "missing": missing,
        "opened": sorted(open_end_reasons),
        "share": "" if cell.goodput is None else level_text(cell.goodput.share, 100),
    }


def cell_text(cell: LoadCell) -> str:
    """Return a cell's results as text, latencies with 95 % intervals."""
    return template(HERE / "cell.txt.j2").render(view(cell)).strip("\n")


def summary_rows(cells: Sequence[LoadCell]) -> list[list[str]]:
    """Return a header and one row per cell."""
    shown = [(name, q) for name in ("ttft_ms", "tpot_ms", "e2e_ms") for q in ("p50", "p90")]
    good = ["good req/s"] * any(cell.goodput is not None for cell in cells)
    rows = [["cell", "n", "ok", "req/s", "tokens/s", *(f"{NAMES[name]} {q}, ms" for name, q in shown), *good]]
    for cell in cells:
        good_cells = [UNKNOWN if cell.goodput is None else f"{cell.goodput.per_s:,.2f}"]
        rows.append(
            [
                cell.cell_id,
                str(cell.requests["window"]),
                str(cell.requests.get("ok", 0)),
                f"{cell.throughput.requests_per_s:,.2f}",
                f"{cell.throughput.output_tokens_per_s:,.0f}",
                *(level_text(Level(_point(cell, name, q))) for name, q in shown),
                *good_cells * len(good),
            ]
        )
    return rows


def _point(cell: LoadCell, name: str, q: str) -> float | None:
    return cell.latencies[name].get(q, Level(None)).point


def csv_of(cells: list[LoadCell]) -> str:
    """Return CSV with one row per cell and number; the unit is part of the quantity's name."""
    buffer = io.StringIO()
    rows = csv.writer(buffer, lineterminator="\n")
    rows.writerow(("cell_id", "rate_per_s", "quantity", "percentile", "value", "low", "high", "n"))
    for cell in cells:
        goodput = cell.goodput
        quantities = {
            name: {"": Level(getattr(cell.throughput, name), n=cell.requests["window"])}
            for name in ("requests_per_s", "output_tokens_per_s", "total_tokens_per_s")
        }
        if goodput is not None:
            quantities |= {
                "goodput_per_s": {"": Level(goodput.per_s, n=goodput.share.n)},
                "good_share": {"": goodput.share},
            }
        rows.writerows(
            (cell.cell_id, cell.rate_per_s, name, q, level.point, level.low, level.high, level.n)
            for name, levels in (quantities | cell.latencies).items()
            for q, level in levels.items()
        )
    return buffer.getvalue()


def found_lines(found: Found) -> list[str]:
    """Return the result of a rate search as lines."""
    has_highest, has_failing = found.highest_per_s is not None, found.fails_per_s is not None
    capped, unsure = (
        ", ".join(f"{j.rate_per_s:g}" for j in found.judged if not j.sure and bool(j.capped) is is_capped)
        for is_capped in (True, False)
    )
    texts = format_labels(
        (has_highest and has_failing, "highest", found),
        (has_highest and not has_failing, "highest_measured", found),
        (not has_highest and found.judged, "none_holds"),
        (not found.judged, "none_judged"),
        (unsure, "unsure", unsure, found.unit),
        (capped, "capped", capped, found.unit),
        (found.stopped, "stopped", found.stopped),
    )
    return list(texts.values())


# --- The page


def page(summary: Summary, load: Load | None, pictures: Sequence[str]) -> str:
    """Return the HTML page.

    Args:
        load: the request; None omits it.
        pictures: data URLs, one per cell.
    """
    search, cells = summary.search, summary.cells
    return template(HERE / "load.html.j2").render(
        summary=summary,
        load=load,
        style=(HERE.parent / "read" / "report" / "report.css").read_text(),
        found_lines=[] if search is None else found_lines(search),
        cells=[{**view(cell), "picture": picture} for cell, picture in zip(cells, pictures, strict=True)],
        rows=summary_rows(cells),
        curves=rate_curves(cells),
        most_points=MOST_POINTS,
    )


def picture(cell: LoadCell, requests: Sequence[RequestRecord]) -> str:
    """Plot latencies over time; return the data URL of a PNG."""
    chosen = in_window(requests, cell.window)
    shown = chosen[:: -(-len(chosen) // MOST_POINTS) or 1]
    offset_s = np.array([(r.t_sched_ns - cell.window.window_start_ns) / 1e9 for r in shown])
    with drawing_style(cell.cell_id):
        figure = new_figure(9.0, 3.0)
        axes = figure.subplots()
        for name, colour in (("e2e", "#D55E00"), ("ttft", "#0072B2")):
            # A latency that no request has is not drawn.
            values = np.array([getattr(r, f"{name}_ns") for r in shown], dtype=np.float64) / 1e6
            if np.isfinite(values).any():
                axes.plot(offset_s, values, ".", markersize=2.5, color=colour, label=name.upper())
        failed = offset_s[np.array([r.status != "ok" for r in shown], dtype=bool)]
        if failed.size:
            low = axes.get_ylim()[0] or 1.0
            axes.plot(failed, np.full(failed.size, low), "x", markersize=4, color=RED, label="failed")
        axes.set_xlabel("scheduled, seconds after the window's start")
        axes.set_ylabel("latency, ms")
        if axes.lines:
            plain_log_axis(axes)
            axes.legend(loc="best", markerscale=3, frameon=True, framealpha=0.9)
        return _data_url(figure, "png", {"Software": None})


def rate_curves(cells: Sequence[LoadCell]) -> dict[str, str]:
    """Plot p50 and p90 of TTFT and TPOT against the offered rate, each as the data URL of an SVG.

    Returns:
        Metric -> URL, without those that have fewer than two rates or no number.
    """
    loads: dict[str, dict[float, LoadCell]] = {}
    saturated_by_rate: dict[float, bool] = {}
    for rate, cell in sorted(
        ((cell.rate_per_s, cell) for cell in cells if cell.rate_per_s), key=lambda pair: pair[0]
    ):
        loads.setdefault(cell.cell_id.partition("_")[2], {})[rate] = cell
        saturated_by_rate[rate] = saturated(cell)
    return {
        NAMES[metric]: _rate_curve(metric, saturated_by_rate, loads)
        for metric in ("ttft_ms", "tpot_ms")
        if len(saturated_by_rate) > 1
        and any(
            _point(cell, metric, q) for c in loads.values() for cell in c.values() for q in ("p50", "p90")
        )
    }


def _rate_curve(
    metric: str, saturated_by_rate: dict[float, bool], loads: dict[str, dict[float, LoadCell]]
) -> str:
    with drawing_style(metric):
        figure = new_figure(4.6, 3.2)
        axes = figure.subplots()
        for k, (load, cells) in enumerate(loads.items()):
            for q, line in (("p50", "o-"), ("p90", "s--")):
                values = np.array([_point(cell, metric, q) for cell in cells.values()], dtype=np.float64)
                name = f"{load} {q}" if len(loads) > 1 else q
                axes.plot([*cells], values, line, color=f"C{k}", label=name)
        ticks: list[float] = []
        for rate, is_full in saturated_by_rate.items():
            if is_full:
                axes.axvline(rate, color=RED, linestyle=":", label="saturated")
            # A closer label would overlap the last one.
            ticks += [rate] * (not ticks or rate > 1.3 * ticks[-1])
        rate_axis(axes, ticks)
        plain_log_axis(axes)
        axes.set_xlabel("offered rate, per second")
        axes.set_ylabel(f"{NAMES[metric]}, ms")
        keys = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
        axes.legend(keys.values(), keys.keys(), loc="best", frameon=True, framealpha=0.9)
        return _data_url(figure, "svg+xml", {"Date": None})


def _data_url(figure: Figure, kind: str, metadata: dict[str, str | None]) -> str:
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind[:3], metadata=metadata)
    # Markup, since a template truncates long text.
    return Markup("data:image/") + f"{kind};base64,{b64encode(buffer.getvalue()).decode()}"
