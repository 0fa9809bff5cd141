"""Reads ``metrics_*.jsonl`` of a cell: statistics of its window's samples, host included, and all samples in
order of time. Nothing is filled in.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from connector_tax.base.connector_off import EXTERNAL_QUERIES
from connector_tax.base.documents.aggregate import Gpu, Host
from connector_tax.base.files import each_line_of, shown
from connector_tax.base.records.bounds import Foreign
from connector_tax.base.records.cell import CellWindow
from connector_tax.base.records.host import GpuReading, HostReading


def host_reading(row: Foreign) -> HostReading | None:
    """Return the host's reading in a line of ``metrics_*.jsonl``; None if it has none, or a foreign one.

    Older versions and rehearsals write none.
    """
    try:
        return msgspec.convert(row["host"], HostReading)
    except (KeyError, msgspec.ValidationError):
        return None


def host_state(readings: Sequence[HostReading]) -> Host | None:
    """Summarise the readings of one window, in time order; None without any."""
    if not readings:
        return None
    medians = [float(np.median(r.cpu_mhz)) for r in readings if r.cpu_mhz]
    return Host(
        n=len(readings),
        steal_share=_steal_share(readings),
        cpu_mhz_p50=median(medians),
        cpu_mhz_min=min(medians, default=None),
        cpu_work_us_mean=_mean([us for r in readings for us in r.cpu_work_us]),
        gpu=_gpu_state([r.gpu for r in readings if r.gpu is not None]),
    )


def _steal_share(readings: Sequence[HostReading]) -> float | None:
    known = [r for r in readings if r.cpu_ticks is not None and r.steal_ticks is not None]
    if not known:
        return None
    total, stolen = (
        getattr(known[-1], name) - getattr(known[0], name) for name in ("cpu_ticks", "steal_ticks")
    )
    # No time passes between a sample and itself. On some hypervisors the counter runs backwards; then the
    # share is unknown.
    return stolen / total if 0 <= stolen <= total and total > 0 else None


def _gpu_state(readings: Sequence[GpuReading]) -> Gpu | None:
    if not readings:
        return None
    reasons = [r.clock_reasons for r in readings if r.clock_reasons is not None]
    counts = Counter(name for names in reasons for name in names)
    temperatures = _known(r.temperature_c for r in readings)
    return Gpu(
        sm_mhz_p50=median(_known(r.sm_mhz for r in readings)),
        mem_mhz_p50=median(_known(r.mem_mhz for r in readings)),
        temperature_c_max=max(temperatures, default=None),
        power_w_mean=_mean(_known(r.power_w for r in readings)),
        utilisation_mean=_mean(_known(r.utilisation for r in readings)),
        clock_reasons={k: counts[k] / len(reasons) for k in sorted(counts)} if reasons else None,
        n_failed=sum(bool(r.errors) for r in readings),
        errors=tuple(dict.fromkeys(e for r in readings for e in r.errors)),
    )


def _known(values: Iterable[float | None]) -> list[float]:
    return [v for v in values if v is not None]


def median(values: list[float]) -> float | None:
    return float(np.median(values)) if values else None


def _mean(values: list[float]) -> float | None:
    return float(np.mean(values)) if values else None


# A counter over time: (t_ns, value) of each sample that has it.
Counted = tuple[tuple[int, float], ...]
# The largest count of a server, of tokens since the launch or of bytes.
MOST_VALUE = 1e18
NAMES = ("num_requests_running", "num_requests_waiting", EXTERNAL_QUERIES)


@dataclass(frozen=True, slots=True)
class Samples:
    """A cell's samples inside its window.

    Attributes:
        external_queries: that counter in all samples from the cell's beginning to its drain.
        waiting_p50, running_p50: medians over the window's samples; None without any.
        n_waiting: samples behind waiting_p50.
        n, n_missed: samples in the window, and those that failed.
        host: its state meanwhile; None if unrecorded, as in artifacts of older versions.
    """

    waiting_p50: float | None
    running_p50: float | None
    n: int
    n_missed: int
    host: Host | None = None
    n_waiting: int = 0
    external_queries: Counted = ()


@dataclass(frozen=True, slots=True)
class Moment:
    """A sample.

    Attributes:
        answered: the engine answered.
        running, waiting: requests; None if the engine did not report them.
        external_queries: that counter.
        host: None if the sample has no reading of the host.
    """

    t_ns: int
    answered: bool
    running: float | None
    waiting: float | None
    external_queries: float | None
    host: HostReading | None


def read_samples(path: Path, window: CellWindow) -> Samples:
    """Summarise the samples of a window; failed samples and unparsable lines count as missed.

    Raises:
        ValueError: a sample has a non-number in place of a number.
    """
    inside, queries, missed = list[Moment](), list[tuple[int, float]](), 0
    for moment in _moments(path):
        if moment is None:
            missed += 1
            continue
        if moment.external_queries is not None:
            queries.append((moment.t_ns, moment.external_queries))
        if window.window_start_ns <= moment.t_ns < window.t_stop_ns:
            inside.append(moment)
    waiting = [m.waiting for m in inside if m.waiting is not None]
    running = [m.running for m in inside if m.running is not None]
    return Samples(
        waiting_p50=median(waiting),
        running_p50=median(running),
        n=len(inside) + missed,
        n_missed=missed + sum(not m.answered for m in inside),
        # Also if the engine did not answer.
        host=host_state([m.host for m in inside if m.host is not None]),
        n_waiting=len(waiting),
        external_queries=tuple(queries),
    )


def read_timeline(path: Path) -> list[Moment]:
    """Read samples in order of time; lines that are no samples are skipped, ``read_samples`` counts them.

    Raises:
        ArtifactError: the file cannot be opened or unpacked.
    """
    return sorted((m for m in _moments(path) if m is not None), key=lambda moment: moment.t_ns)


def _moments(path: Path) -> Iterator[Moment | None]:
    """Yield a sample per line; None for a line that is none."""
    for line in each_line_of(path) if path.exists() else ():
        try:
            row = msgspec.json.decode(line.decode("utf-8", errors="replace"))
            t_ns = int(row["t_ns"])
        except (msgspec.DecodeError, ValueError, KeyError, TypeError, RecursionError, OverflowError):
            yield None
            continue
        values = row.get("values") if row.get("ok") else None
        running, waiting, queries = (_number(values, name) for name in NAMES)
        yield Moment(t_ns, values is not None, running, waiting, queries, host_reading(row))


def _number(values: object, name: str) -> float | None:
    """Return the number of that name; None if missing.

    Raises:
        ValueError: it is no number, or larger than any count of a server.
    """
    if not isinstance(values, dict) or name not in values:
        return None
    value = values[name]
    if not isinstance(value, int | float) or not abs(value) < MOST_VALUE:
        raise ValueError(f"{name} of a sample is {shown(value)}, which is no number of a server")
    return float(value)
