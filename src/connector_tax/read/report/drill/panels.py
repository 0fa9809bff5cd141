"""The panels of one cell: which of its raw values stand over time, thinned."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from connector_tax.base.records.host import GpuReading, HostReading
from connector_tax.base.records.request import RequestRecord
from connector_tax.base.units import NS_PER_MS, NS_PER_S
from connector_tax.read.ingest.steps import StepTable
from connector_tax.read.ingest.timeline import Moment
from connector_tax.read.report.drill.thinning import Floats, extremes, medians

# How finely a cell may be drawn, finest first: parts of its time.
PARTS = (240, 180, 120, 90, 60, 45, 30, 20, 15)


@dataclass(frozen=True, slots=True)
class Times:
    """Of a cell, in seconds from its T0; the window is what statistics use."""

    t0_ns: int
    window_start: float
    window_end: float
    end: float

    def after_t0(self, t_ns: Iterable[int]) -> Floats:
        return np.array([(t - self.t0_ns) / NS_PER_S for t in t_ns], dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Trace:
    """One series as it is drawn.

    Attributes:
        look: ``dots``, ``line``, or ``marks`` of requests that have no value.
        colour: which of the page's three; red is of marks alone.
        at, values: seconds and the panel's unit; of marks there are no values.
        of: how many values it was thinned from; 0 of one that is worked out of others, as a median.
    """

    name: str
    look: str
    colour: int
    at: Floats
    values: Floats
    of: int


@dataclass(frozen=True, slots=True)
class Panel:
    """Series that share an axis.

    Attributes:
        key: the same in every cell, so that two can be laid beside each other.
        unit: empty where each series is named by its own.
    """

    key: str
    title: str
    unit: str
    traces: tuple[Trace, ...]


@dataclass(frozen=True, slots=True)
class Raw:
    """What a cell's panels are made of.

    Attributes:
        steps: None without step records.
    """

    times: Times
    requests: Sequence[RequestRecord]
    steps: StepTable | None
    moments: Sequence[Moment]


def panels(raw: Raw, parts: int) -> tuple[Panel, ...]:
    """Those that have something to show."""
    found = (*_latencies(raw, parts), _steps(raw, parts), _queue(raw, parts), *_host(raw, parts))
    return tuple(p for p in found if p is not None)


def _latencies(raw: Raw, parts: int) -> list[Panel | None]:
    """Requests that have none stand in the first."""
    sent = raw.times.after_t0(r.t_sched_ns for r in raw.requests)

    def panel(
        key: str, title: str, value: Callable[[RequestRecord], float | None], *failed: Trace
    ) -> Panel | None:
        own = [value(r) for r in raw.requests]
        ms = np.array([np.nan if v is None else v / NS_PER_MS for v in own], dtype=np.float64)
        dots = _trace("request", "dots", 0, sent, ms, raw.times, parts)
        return Panel(key, title, "ms", (*dots, *failed)) if dots or failed else None

    return [
        panel("ttft", "TTFT of each request", lambda r: r.ttft_ns, *_failures(raw, parts)),
        panel("e2e", "E2E latency of each request", lambda r: r.e2e_ns),
        panel("tpot", "TPOT of each request", lambda r: r.tpot_ns),
    ]


def _failures(raw: Raw, parts: int) -> list[Trace]:
    """One series of marks for each status but ok; of each part the first."""
    found = []
    for status in sorted({r.status for r in raw.requests} - {"ok"}):
        at = raw.times.after_t0(r.t_sched_ns for r in raw.requests if r.status == status)
        inside = np.sort(at[_inside(at, raw.times)])
        if inside.size:
            chosen = inside[extremes(inside, np.zeros(inside.size), raw.times.end, parts)]
            found.append(Trace(status.replace("_", " "), "marks", 0, chosen, np.empty(0), at.size))
    return found


def _steps(raw: Raw, parts: int) -> Panel | None:
    if raw.steps is None or not raw.steps.n:
        return None
    at = raw.steps.began_s + raw.times.window_start
    ms = raw.steps.step_duration_us / 1e3
    whole = _trace("step", "dots", 0, at, ms, raw.times, parts)
    inside = _inside(at, raw.times) & np.isfinite(ms)
    middle, median = medians(at[inside], ms[inside], raw.times.end, parts)
    return Panel("steps", "Step duration", "ms", (*whole, Trace("median", "line", 1, middle, median, 0)))


def _queue(raw: Raw, parts: int) -> Panel | None:
    running, waiting = [m.running for m in raw.moments], [m.waiting for m in raw.moments]
    return _over_time(
        raw, parts, "queue", "Requests in the engine", "requests", {"running": running, "waiting": waiting}
    )


def _host(raw: Raw, parts: int) -> list[Panel | None]:
    def of_host(value: Callable[[HostReading], float | None]) -> list[float | None]:
        return [None if m.host is None else value(m.host) for m in raw.moments]

    def of_gpu(value: Callable[[GpuReading], float | None]) -> list[float | None]:
        return of_host(lambda h: None if h.gpu is None else value(h.gpu))

    def panel(key: str, title: str, unit: str, **series: list[float | None]) -> Panel | None:
        return _over_time(raw, parts, key, title, unit, series)

    cpu_mhz = of_host(lambda h: float(np.median(h.cpu_mhz)) if h.cpu_mhz else None)
    work = of_host(lambda h: float(np.mean(h.cpu_work_us)) if h.cpu_work_us else None)
    sm_mhz, mem_mhz = of_gpu(lambda g: g.sm_mhz), of_gpu(lambda g: g.mem_mhz)
    heat, power = of_gpu(lambda g: g.temperature_c), of_gpu(lambda g: g.power_w)
    return [
        panel("steal", "CPU time stolen by the hypervisor", "%", stolen=_stolen(raw.moments)),
        panel("work", "CPU time of the fixed piece of work", "µs", work=work),
        panel("clocks", "Clocks, CPU's median over cores", "MHz", CPU=cpu_mhz, SM=sm_mhz, memory=mem_mhz),
        panel("heat", "GPU temperature and power", "", **{"°C": heat, "W": power}),
    ]


def _stolen(moments: Sequence[Moment]) -> list[float | None]:
    """Percent of all cores' ticks since the reading before; None where the counters say nothing, or ran backwards."""
    found: list[float | None] = []
    before: tuple[int, int] | None = None
    for moment in moments:
        host = moment.host
        share = None
        if host is not None and host.cpu_ticks is not None and host.steal_ticks is not None:
            if before is not None:
                ticks, stolen = host.cpu_ticks - before[0], host.steal_ticks - before[1]
                share = 100 * stolen / ticks if 0 <= stolen <= ticks and ticks else None
            before = (host.cpu_ticks, host.steal_ticks)
        found.append(share)
    return found


def _over_time(
    raw: Raw, parts: int, key: str, title: str, unit: str, series: dict[str, list[float | None]]
) -> Panel | None:
    at = raw.times.after_t0(m.t_ns for m in raw.moments)
    traces: list[Trace] = []
    for colour, (name, own) in enumerate(series.items()):
        values = np.array([np.nan if v is None else v for v in own], dtype=np.float64)
        traces += _trace(name, "line", colour, at, values, raw.times, parts)
    return Panel(key, title, unit, tuple(traces)) if traces else None


def _trace(
    name: str, look: str, colour: int, at: Floats, values: Floats, times: Times, parts: int
) -> list[Trace]:
    """None where nothing lies inside the cell's time."""
    known = _inside(at, times) & np.isfinite(values)
    at, values = at[known], values[known]
    chosen = extremes(at, values, times.end, parts)
    return [Trace(name, look, colour, at[chosen], values[chosen], at.size)] if at.size else []


def _inside(at: Floats, times: Times) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return (at >= 0) & (at <= times.end)
