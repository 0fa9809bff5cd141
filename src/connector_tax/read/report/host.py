"""What the host did meanwhile, in words: over all cells, and whether it changed over the launches that drift is told from."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from connector_tax.base.documents.aggregate import (
    Aggregate,
    Drift,
    Gpu,
    Host,
    HostDrift,
    HostSource,
    Interval,
)
from connector_tax.read.figures.words import MINUS, listing, rate, with_interval
from connector_tax.read.report.tax_text import phase_name
from connector_tax.read.stats.host import HARMLESS_REASONS

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


@dataclass(frozen=True, slots=True)
class DriftRow:
    name: str
    mean: str
    change: str
    p: str
    word: str
    mood: str


@dataclass(frozen=True, slots=True)
class DriftTable:
    title: str
    rows: list[DriftRow]
    unknown: str


def host_view(aggregate: Aggregate) -> list[str]:
    """A sentence per source over all usable cells; one sentence alone if nobody looked."""
    cells = list(aggregate.measured())
    hosts = [cell.host for cell in cells if cell.host is not None]
    if not cells:
        return []
    if not hosts:
        return [NO_READINGS]
    gpus = [host.gpu for host in hosts if host.gpu is not None]
    found = [] if len(hosts) == len(cells) else [f"{len(hosts)} of {len(cells)} cells say what the host did."]
    found.append(_cpu(hosts))
    found.append(_gpu(gpus) if gpus else "GPU: none that could be asked.")
    found += _side_by_side(aggregate)
    return found


def _side_by_side(aggregate: Aggregate) -> list[str]:
    """Of a campaign of several cards: that neighbours were at work, and whether what is compared was measured on one card."""
    provenance = aggregate.provenance
    if not provenance.cards:
        return []
    n, places = provenance.engines_at_once, len(provenance.cards)
    engines = (
        f"Up to {n} engines ran side by side on this host and shared its memory and buses. "
        "tests/perf/neighbours.py measures by how much such neighbours slow plain down."
        if n > 1
        else f"Engines ran one at a time, on {places} card{'s' if places > 1 else ''} of this host that the campaign could use side by side."
    )
    if not provenance.gpu:
        return [engines]
    if not provenance.mixed_cards:
        return [f"{engines} Cells that are compared with one another ran on one card."]
    phases = listing([f"phase {phase_name(p)}" for p in provenance.mixed_cards], len(provenance.mixed_cards))
    return [
        f"{engines} In {phases}, cells that are compared with one another ran on different cards: a tax there holds what these cards "
        "differ by, and an interval of one launch of each does not."
    ]


def _cpu(hosts: Sequence[Host]) -> str:
    steal, mhz = _known(h.steal_share for h in hosts), _known(h.cpu_mhz_p50 for h in hosts)
    stolen = (
        f"{_range(steal, 'ratio')} of CPU time stolen per cell" if steal else "what was stolen is not told"
    )
    clock = f"clocks of {_range(mhz, 'MHz')}" if mhz else "this kernel does not tell their clocks"
    work = _known(h.cpu_work_us_mean for h in hosts)
    speed = (
        f" A fixed piece of work took {_range(work, 'us')} of CPU time (mean per cell): the part of a latency that the host takes grows about in proportion."
        if work
        else ""
    )
    return f"CPUs: {stolen}; {clock}.{speed}"


def _gpu(gpus: Sequence[Gpu]) -> str:
    parts = [
        f"{name} {_range(values, unit)}"
        for name, values, unit in (
            ("SM clock", _known(g.sm_mhz_p50 for g in gpus), "MHz"),
            ("peak temperature", _known(g.temperature_c_max for g in gpus), "C"),
            ("mean power", _known(g.power_w_mean for g in gpus), "W"),
        )
        if values
    ]
    # An idle GPU lowers its clocks, and somebody may have set them: nothing held those down.
    reasons = Counter(name for g in gpus for name in g.clock_reasons or () if name not in HARMLESS_REASONS)
    held = [f"{name} in {n} of {len(gpus)} cells" for name, n in reasons.most_common()]
    if held:
        parts.append(f"clocks held down by {listing(held, 6)}")
    failed = [error for g in gpus for error in g.errors]
    if failed:
        parts.append(f"readings failed in {sum(bool(g.errors) for g in gpus)} cells ({failed[0]})")
    return f"GPU, per cell: {'; '.join(parts) or 'it tells nothing'}."


def _known(values: Iterable[float | None]) -> list[float]:
    return [v for v in values if v is not None]


def host_drift_view(aggregate: Aggregate) -> list[DriftTable]:
    """One table per reference rate with blocks: drift of plain's percentiles, and of each source beside it."""
    return [_table(aggregate, entry) for entry in aggregate.host_drift]


def _table(aggregate: Aggregate, entry: HostDrift) -> DriftTable:
    alpha = 1 - aggregate.provenance.confidence
    latencies = [
        _row(METRIC_WORDS.get(e.metric, ""), "", e.drift, with_interval, alpha)
        for e in aggregate.repeats
        if e.rate_per_s == entry.rate_per_s and e.drift is not None
    ]
    known = {s.source for s in entry.sources}
    unknown = [word for source, word in SOURCE_WORDS.items() if source not in known]
    return DriftTable(
        title=f"The host over {entry.n_launches} launches of plain at {entry.reference}, {rate(entry.rate_per_s)}",
        rows=latencies + [_source_row(s, alpha) for s in entry.sources],
        unknown=f"Not told by this host: {listing(unknown, len(unknown))}." if unknown else "",
    )


def _source_row(source: HostSource, alpha: float) -> DriftRow:
    unit = source.unit
    mean = _amount(source.mean, unit)
    return _row(SOURCE_WORDS[source.source], mean, source, lambda v: _change(v, unit), alpha)


def _row(
    name: str, mean: str, line: Drift | HostSource, text: Callable[[Interval], str], alpha: float
) -> DriftRow:
    sure = line.p_value < alpha
    return DriftRow(
        name=name,
        mean=mean,
        change=text(line.change.interval),
        p=f"{line.p_value:.2g}",
        word="changes" if sure else "no visible change",
        mood="open" if sure else "none",
    )


def _change(value: Interval, unit: str) -> str:
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
