"""Results as text: one block per cell when it is over, and a table of all at the end."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from connector_tax.base.documents.load import LATENCIES, Level, LoadCell
from connector_tax.base.statistics.texts import digits_apart
from connector_tax.base.templates import template
from connector_tax.base.units import duration_text
from connector_tax.load.measured import worded

NAMES = {"ttft_ms": "TTFT", "tpot_ms": "TPOT", "itl_ms": "ITL", "e2e_ms": "E2E"}
UNKNOWN = "-"
TEMPLATE = Path(__file__).with_name("cell.txt.j2")


def level_text(level: Level, scale: float = 1.0) -> str:
    """``112 [110, 115]``; an end that is not known is a dash, a number without an interval stands alone."""
    values = [level.point, level.low, level.high]
    known = [v * scale for v in values if v is not None]
    texts = iter(digits_apart(known))
    point, low, high = (UNKNOWN if v is None else next(texts) for v in values)
    return point if level.low is None and level.high is None else f"{point} [{low}, {high}]"


def view(cell: LoadCell) -> dict[str, Any]:
    """Return a cell as the templates of text and page ask for it."""
    missing: dict[str, dict[str, None]] = {}
    opened = set()
    for name, levels in cell.latencies.items():
        for level in levels.values():
            if level.point is None:
                missing.setdefault(level.reason or "unavailable", {})[NAMES[name]] = None
            elif None in (level.low, level.high) and level.reason:
                opened.add(level.reason)
    ramp, demand, rate = cell.spec.ramp_from_per_s, cell.demand, cell.rate_per_s
    # On a ramp its schedule asked for another rate in the window: the last one comes at its end.
    ramped = ramp is not None and demand is not None and demand.over_s > 0
    seconds = cell.throughput.over_s
    return {
        "cell": cell,
        "over": f"{seconds:.2f} s" if seconds < 10 else duration_text(seconds),
        "asked": worded(
            (ramped, "ramped", demand, ramp, rate), (rate is not None and not ramped, "asked", rate)
        ).values(),
        # A latency that no request has, failed or not, has no row.
        "rows": [
            [NAMES[name], *map(level_text, cell.latencies[name].values())]
            for name in LATENCIES
            if any(v.point is not None or v.n for v in cell.latencies[name].values())
        ],
        "missing": missing,
        "opened": sorted(opened),
        "share": "" if cell.goodput is None else level_text(cell.goodput.share, 100),
    }


def cell_text(cell: LoadCell) -> str:
    """What a person wants to know of one cell; latencies with 95 % intervals."""
    return template(TEMPLATE).render(view(cell)).strip("\n")


def summary_rows(cells: Sequence[LoadCell]) -> list[list[str]]:
    """A header and one row per cell."""
    shown = [(name, q) for name in ("ttft_ms", "tpot_ms", "e2e_ms") for q in ("p50", "p90")]
    good = ["good req/s"] if any(cell.goodput is not None for cell in cells) else []
    rows = [["cell", "n", "ok", "req/s", "tokens/s", *(f"{NAMES[name]} {q}, ms" for name, q in shown), *good]]
    for cell in cells:
        row = [
            cell.cell_id,
            str(cell.requests["window"]),
            str(cell.requests.get("ok", 0)),
            f"{cell.throughput.requests_per_s:,.2f}",
            f"{cell.throughput.output_tokens_per_s:,.0f}",
        ]
        for name, q in shown:
            level = cell.latencies[name].get(q)
            row.append(UNKNOWN if level is None else level_text(Level(level.point)))
        if good:
            row.append(UNKNOWN if cell.goodput is None else f"{cell.goodput.per_s:,.2f}")
        rows.append(row)
    return rows
