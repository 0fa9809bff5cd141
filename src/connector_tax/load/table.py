"""Results as text: one block per cell when it is over, and a table of all at the end."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from connector_tax.base.documents.load import LATENCIES, Level, LoadCell
from connector_tax.base.statistics.texts import digits_apart
from connector_tax.base.templates import template
from connector_tax.base.units import duration_text
from connector_tax.load.remarks import said

NAMES = {"ttft_ms": "TTFT", "tpot_ms": "TPOT", "itl_ms": "ITL", "e2e_ms": "E2E"}
UNKNOWN = "-"
TEMPLATE = Path(__file__).with_name("cell.txt.j2")


def level_text(level: Level, scale: float = 1.0) -> str:
    """``112 [110, 115]``; an end that is not known is a dash, a number without an interval stands alone."""
    if level.point is None:
        return UNKNOWN
    known = [v * scale for v in (level.point, level.low, level.high) if v is not None]
    texts = dict(zip(known, digits_apart(known), strict=True))
    point = texts[level.point * scale]
    if level.low is None and level.high is None:
        return point
    ends = [UNKNOWN if end is None else texts[end * scale] for end in (level.low, level.high)]
    return f"{point} [{ends[0]}, {ends[1]}]"


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
    hits = cell.prefix_cache or {}
    found, queried = (hits.get(key) or 0.0 for key in ("hit_tokens", "queried_tokens"))
    ramp, demand = cell.spec.ramp_from_per_s, cell.demand
    asked = (cell.rate_per_s,) if cell.rate_per_s is not None else None
    # On a ramp its schedule asked for another rate in the window: the last one comes at its end.
    ramped = (
        (demand.due / demand.over_s, ramp, cell.rate_per_s)
        if asked and ramp and demand and demand.over_s
        else None
    )
    told = cell.first_failure is None or any(cell.first_failure in reason for reason in cell.not_believed)
    seconds = cell.throughput.over_s
    codes = {
        "first_failure": None if told else (cell.first_failure,),
        "hits_unknown": ("",) if "prefix_cache_unchecked" in cell.flags else None,
        "hits": (found, queried, found / queried if queried else 0.0, hits["store_hit_tokens"] or 0.0)
        if "prefix_cache_hits" in cell.flags and hits
        else None,
    }
    return {
        "cell": cell,
        "over": f"{seconds:.2f} s" if seconds < 10 else duration_text(seconds),
        "failed": {status: n for status, n in cell.requests.items() if status not in ("window", "ok")},
        "asked": "".join(said({"ramped": ramped} if ramped else {"asked": asked})),
        # A latency that no request has, failed or not, has no row.
        "rows": [
            [NAMES[name], *(level_text(v) for v in cell.latencies[name].values())]
            for name in LATENCIES
            if any(v.point is not None or v.n for v in cell.latencies[name].values())
        ],
        "missing": missing,
        "opened": sorted(opened),
        "remarks": (*cell.remarks, *said(codes)),
        "share": "" if cell.goodput is None else level_text(cell.goodput.share, 100),
    }


def cell_text(cell: LoadCell) -> str:
    """What a person wants to know of one cell; latencies with 95 % intervals."""
    return template(TEMPLATE).render(view(cell)).strip("\n")


def summary_rows(cells: Sequence[LoadCell]) -> list[list[str]]:
    """A header and one row per cell."""
    shown = [(name, q) for name in ("ttft_ms", "tpot_ms", "e2e_ms") for q in ("p50", "p90")]
    good = any(cell.goodput is not None for cell in cells)
    header = ["cell", "n", "ok", "req/s", "tokens/s", *(f"{NAMES[name]} {q}, ms" for name, q in shown)]
    rows = [[*header, *["good req/s"] * good]]
    for cell in cells:
        levels = [cell.latencies[name].get(q) for name, q in shown]
        row = [
            cell.cell_id,
            str(cell.requests["window"]),
            str(cell.requests.get("ok", 0)),
            f"{cell.throughput.requests_per_s:,.2f}",
            f"{cell.throughput.output_tokens_per_s:,.0f}",
            *(UNKNOWN if v is None else level_text(Level(v.point)) for v in levels),
        ]
        rows.append([*row, *[UNKNOWN if cell.goodput is None else f"{cell.goodput.per_s:,.2f}"] * good])
    return rows
