"""What the host did meanwhile, in words: over all cells, and whether it changed over the launches that drift is told from."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from connector_tax.read.figures.lookup import (
    Aggregate,
    confidence_of,
    interval,
    mapping,
    number,
    rows,
    usable,
)
from connector_tax.read.figures.words import MINUS, listing, rate, with_interval

Text = dict[str, Any]
METRIC_WORDS = {"ttft_p90": "plain's TTFT p90", "tpot_p90": "plain's TPOT p90"}
SOURCE_WORDS = {
    "steal_share": "CPU time stolen",
    "cpu_mhz_p50": "CPU clock",
    "cpu_work_us_mean": "CPU time of a fixed piece of work",
    "gpu_sm_mhz_p50": "GPU clock (SM)",
    "gpu_temperature_c_max": "GPU temperature",
    "gpu_power_w_mean": "GPU power",
}
UNITS = {"ratio": " %", "MHz": " MHz", "us": " µs", "C": " °C", "W": " W"}
# Steal moves in hundredths of a percent, clocks in whole MHz.
DIGITS = {"ratio": 2, "MHz": 0, "us": 0, "C": 1, "W": 1}
NO_READINGS = "No sample says what the host did: these cells were rehearsed, or measured by a version that did not look."


def host_view(aggregate: Aggregate) -> list[str]:
    """A sentence per source over all usable cells; one sentence alone if nobody looked."""
    cells = [c for c in rows(aggregate.get("cells")) if usable(c)]
    hosts = [mapping(c.get("host")) for c in cells if c.get("host") is not None]
    if not cells:
        return []
    if not hosts:
        return [NO_READINGS]
    gpus = [mapping(h.get("gpu")) for h in hosts if h.get("gpu") is not None]
    found = [] if len(hosts) == len(cells) else [f"{len(hosts)} of {len(cells)} cells say what the host did."]
    found.append(_cpu(hosts))
    found.append(_gpu(gpus) if gpus else "GPU: none that could be asked.")
    return found


def _cpu(hosts: list[Mapping[str, Any]]) -> str:
    steal, mhz = _numbers(hosts, "steal_share"), _numbers(hosts, "cpu_mhz_p50")
    stolen = (
        f"{_range(steal, 'ratio')} of CPU time stolen per cell" if steal else "what was stolen is not told"
    )
    clock = f"clocks of {_range(mhz, 'MHz')}" if mhz else "this kernel does not tell their clocks"
    work = _numbers(hosts, "cpu_work_us_mean")
    speed = (
        f" A fixed piece of work took {_range(work, 'us')} of CPU time (mean per cell): the host's share of a latency grows about alike."
        if work
        else ""
    )
    return f"CPUs: {stolen}; {clock}.{speed}"


def _gpu(gpus: list[Mapping[str, Any]]) -> str:
    parts = [
        f"{name} {_range(values, unit)}"
        for name, key, unit in (
            ("SM clock", "sm_mhz_p50", "MHz"),
            ("peak temperature", "temperature_c_max", "C"),
            ("mean power", "power_w_mean", "W"),
        )
        if (values := _numbers(gpus, key))
    ]
    reasons = Counter(name for g in gpus for name in mapping(g.get("clock_reasons")))
    held = [f"{name} in {n} of {len(gpus)} cells" for name, n in reasons.most_common()]
    if held:
        parts.append(f"clocks held down by {listing(held, 6)}")
    failed = [str(e) for g in gpus for e in g.get("errors") or []]
    if failed:
        parts.append(f"readings failed in {sum(bool(g.get('errors')) for g in gpus)} cells ({failed[0]})")
    return f"GPU, per cell: {'; '.join(parts) or 'it tells nothing'}."


def _numbers(found: list[Mapping[str, Any]], key: str) -> list[float]:
    return [v for v in (number(f.get(key)) for f in found) if v is not None]


def host_drift_view(aggregate: Aggregate) -> list[Text]:
    """One table per reference rate with blocks: drift of plain's percentiles, and of each source beside it."""
    return [_table(aggregate, entry) for entry in rows(aggregate.get("host_drift"))]


def _table(aggregate: Aggregate, entry: Mapping[str, Any]) -> Text:
    sources, alpha = rows(entry.get("sources")), 1 - confidence_of(aggregate)
    latencies = [
        _row(METRIC_WORDS.get(str(e.get("metric")), ""), "", mapping(e.get("drift")), with_interval, alpha)
        for e in rows(aggregate.get("repeats"))
        if e.get("rate_per_s") == entry.get("rate_per_s") and e.get("drift") is not None
    ]
    known = {str(s.get("source")) for s in sources}
    unknown = [word for source, word in SOURCE_WORDS.items() if source not in known]
    return {
        "title": f"The host over plain's {number(entry.get('n_launches')) or 0:.0f} launches at "
        f"{entry.get('reference')}, {rate(number(entry.get('rate_per_s')) or 0.0)}",
        "rows": latencies + [_source_row(s, alpha) for s in sources],
        "unknown": f"Not told by this host: {listing(unknown, len(unknown))}." if unknown else "",
    }


def _source_row(source: Mapping[str, Any], alpha: float) -> Text:
    unit = str(source.get("unit"))
    name = SOURCE_WORDS.get(str(source.get("source")), str(source.get("source")))
    mean = number(source.get("mean"))
    return _row(name, "–" if mean is None else _amount(mean, unit), source, lambda v: _change(v, unit), alpha)


def _row(name: str, mean: str, line: Mapping[str, Any], text: Callable[[Any], str], alpha: float) -> Text:
    change, p_value = interval(line.get("change")), number(line.get("p_value"))
    sure = p_value is not None and p_value < alpha
    return {
        "name": name,
        "mean": mean,
        "change": "–" if change is None else text(change),
        "p": "–" if p_value is None else f"{p_value:.2g}",
        "word": "changes" if sure else "no visible change",
        "mood": "open" if sure else "none",
    }


def _change(value: Any, unit: str) -> str:
    """Of a share in percentage points; else in its own unit."""
    shown = "pp" if unit == "ratio" else UNITS[unit].strip()
    point, low, high = (_signed(v, unit) for v in (value.point, value.low, value.high))
    return f"{point} {shown} [{low}, {high}]"


def _signed(value: float | None, unit: str) -> str:
    if value is None:
        return "–"
    text = f"{abs(value) * (100 if unit == 'ratio' else 1):,.{DIGITS[unit]}f}"
    sign = "" if float(text.replace(",", "")) == 0 else "+" if value > 0 else MINUS
    return sign + text


def _amount(value: float, unit: str) -> str:
    return f"{value * (100 if unit == 'ratio' else 1):,.{DIGITS[unit]}f}{UNITS[unit]}"


def _range(values: list[float], unit: str) -> str:
    low, high = _amount(min(values), unit), _amount(max(values), unit)
    return low if low == high else f"{low.removesuffix(UNITS[unit])} to {high}"
