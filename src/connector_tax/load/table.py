"""Results as text: one block per cell when it is over, and a table of all at the end."""

from collections.abc import Iterable, Sequence

from connector_tax.base.documents.load import LATENCIES, Level, LoadCell
from connector_tax.base.statistics.texts import digits_apart
from connector_tax.base.units import duration_text

NAMES = {"ttft_ms": "TTFT", "tpot_ms": "TPOT", "itl_ms": "ITL", "e2e_ms": "E2E"}
UNKNOWN = "-"


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


def cell_text(cell: LoadCell) -> str:
    """What a person wants to know of one cell; latencies with 95 % intervals."""
    counts = cell.requests
    failed = ", ".join(f"{n} {status}" for status, n in counts.items() if status not in ("window", "ok"))
    done = cell.throughput
    lines = [
        f"{cell.cell_id}: {counts['window']} requests in {_seconds(done.over_s)}, {counts.get('ok', 0)} ok"
        + (f", {failed}" if failed else ""),
        f"  {done.requests_per_s:,.2f} requests/s{asked_text(cell)}; {done.output_tokens_per_s:,.0f} output and "
        f"{done.total_tokens_per_s:,.0f} total tokens/s",
        *_latency_lines(cell),
    ]
    if cell.goodput is not None:
        limits = " and ".join(map(str, cell.goodput.limits))
        share = level_text(cell.goodput.share, 100)
        lines.append(f"  goodput {cell.goodput.per_s:,.2f} requests/s; {share} % of requests have {limits}")
    lines += [f"  {line}" for line in (*failure_lines(cell), *cell.not_believed, *cell.remarks)]
    lines += [f"  flag: {flag}" for flag in cell.flags]
    if (cache := _cache_text(cell)) is not None:
        lines.append(f"  {cache}")
    return "\n".join(lines)


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds < 10 else duration_text(seconds)


def asked_text(cell: LoadCell) -> str:
    """`` of 4 asked``; on a ramp of what its schedule asked for in the window, since the last rate comes at its end."""
    if cell.rate_per_s is None:
        return ""
    first = cell.spec.ramp_from_per_s
    if first is None or cell.demand is None or not cell.demand.over_s:
        return f" of {cell.rate_per_s:g} asked"
    asked = cell.demand.due / cell.demand.over_s
    return f" of {asked:.2f} asked by a ramp from {first:g} to {cell.rate_per_s:g}"


def failure_lines(cell: LoadCell) -> list[str]:
    """How the first request failed, where nothing else says so."""
    if cell.first_failure is None or any(cell.first_failure in reason for reason in cell.not_believed):
        return []
    return [f"the first failure: {cell.first_failure}"]


def unavailable_lines(cell: LoadCell) -> list[str]:
    """Why there is no number, of all latencies and percentiles for which that is the reason: ``no TTFT, E2E: ...``."""
    why: dict[str, list[str]] = {}
    for name in LATENCIES:
        levels = cell.latencies[name]
        missing = {q: level.reason or "unavailable" for q, level in levels.items() if level.point is None}
        for reason in dict.fromkeys(missing.values()):
            of_it = [q for q, found in missing.items() if found == reason]
            named = len(of_it) == len(levels) or reason.startswith(f"{of_it[0]} ")
            why.setdefault(reason, []).append(NAMES[name] if named else f"{NAMES[name]} {', '.join(of_it)}")
    return [f"no {', '.join(names)}: {reason}" for reason, names in why.items()]


def open_reasons(cell: LoadCell) -> list[str]:
    """Why numbers that there are have no interval, or one that is open."""
    levels = [level for name in LATENCIES for level in cell.latencies[name].values()]
    return sorted({v.reason for v in levels if v.point is not None and None in (v.low, v.high) and v.reason})


def _latency_lines(cell: LoadCell) -> list[str]:
    # A latency that no request has, failed or not, has no row.
    shown = [
        name for name in LATENCIES if any(v.point is not None or v.n for v in cell.latencies[name].values())
    ]
    header = ["ms", *cell.latencies["e2e_ms"]]
    rows = [[NAMES[name], *(level_text(v) for v in cell.latencies[name].values())] for name in shown]
    return [
        *("  " + line for line in (columns([header, *rows]) if rows else ())),
        *(f"  {line}" for line in unavailable_lines(cell)),
        *(f"  no interval: {why}" for why in open_reasons(cell)),
    ]


def _cache_text(cell: LoadCell) -> str | None:
    hits = cell.prefix_cache
    if "prefix_cache_unchecked" in cell.flags:
        return (
            "prefix cache: hits are not known; of prompts that were in it TTFT would not be that of new ones"
        )
    if "prefix_cache_hits" not in cell.flags or hits is None:
        return None
    found, asked = hits["hit_tokens"] or 0.0, hits["queried_tokens"] or 0.0
    share = f" ({found / asked:.0%})" if asked else ""
    stored = f", and {hits['store_hit_tokens']:.0f} came out of a store" if hits["store_hit_tokens"] else ""
    return f"prefix cache: {found:.0f} of {asked:.0f} prompt tokens were in it{share}{stored}; TTFT is not that of new prompts"


def summary_rows(cells: Sequence[LoadCell]) -> list[list[str]]:
    """A header and one row per cell."""
    header = [
        "cell",
        "n",
        "ok",
        "req/s",
        "tokens/s",
        "TTFT p50, ms",
        "p90",
        "TPOT p50, ms",
        "p90",
        "E2E p50, ms",
        "p90",
    ]
    if any(cell.goodput is not None for cell in cells):
        header.append("good req/s")
    rows = []
    for cell in cells:
        levels = [
            cell.latencies[name].get(q) for name in ("ttft_ms", "tpot_ms", "e2e_ms") for q in ("p50", "p90")
        ]
        row = [
            cell.cell_id,
            str(cell.requests["window"]),
            str(cell.requests.get("ok", 0)),
            f"{cell.throughput.requests_per_s:,.2f}",
            f"{cell.throughput.output_tokens_per_s:,.0f}",
            *(UNKNOWN if v is None else level_text(Level(v.point)) for v in levels),
        ]
        if len(header) == 12:
            row.append(UNKNOWN if cell.goodput is None else f"{cell.goodput.per_s:,.2f}")
        rows.append(row)
    return [header, *rows]


def columns(rows: Sequence[Sequence[str]]) -> Iterable[str]:
    """The first column to the left, all others to the right."""
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    for row in rows:
        first, *others = (text.rjust(width) for text, width in zip(row, widths, strict=True))
        yield "  ".join([row[0].ljust(len(first)), *others]).rstrip()
