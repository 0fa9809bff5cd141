"""Something switched on and off within one running server, in the order on, off, off, on, and what its clients saw."""

import statistics
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic_ns

from scipy import stats

from connector_tax.base.records.request import RequestRecord

# Fewer requests in a slice than this have no median worth its name.
MIN_REQUESTS = 5


@dataclass
class Slices:
    """Toggles ``off`` (a file: there means off) until stopped; a slice counts once it has settled."""

    off: Path
    slice_s: float
    settle_s: float
    seen: list[tuple[int, int, bool]] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> "Slices":
        self._thread = threading.Thread(target=self._toggle)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _toggle(self) -> None:
        for k in range(100_000):
            on = k % 4 in (0, 3)
            if on:
                with suppress(FileNotFoundError):
                    self.off.unlink()
            else:
                self.off.touch()
            time.sleep(self.settle_s)
            start_ns = monotonic_ns()
            if self._stop.wait(self.slice_s):
                return
            self.seen.append((start_ns, monotonic_ns(), on))


@dataclass(frozen=True)
class Paired:
    """On less off, microseconds of ``what``, over pairs of neighbouring slices; the interval is Student's t at 95 %."""

    what: str
    off_us: float
    mean_us: float
    half_width_us: float
    pairs: int

    def __str__(self) -> str:
        low, high = self.mean_us - self.half_width_us, self.mean_us + self.half_width_us
        return (
            f"{self.what} {self.off_us:.0f} us off; on {self.mean_us:+.1f} us [{low:+.1f}, {high:+.1f}], "
            f"{self.mean_us / self.off_us:+.2%} [{low / self.off_us:+.2%}, {high / self.off_us:+.2%}]; {self.pairs} pairs"
        )


def paired(requests: list[RequestRecord], slices: Slices) -> Paired:
    """A request belongs to a slice if all of it lies inside."""
    medians = []
    for start_ns, end_ns, on in slices.seen:
        inside = [
            r.tpot_ns / 1e3
            for r in requests
            if r.tpot_ns is not None and r.t_sched_ns >= start_ns and (r.t_last_token_ns or 0) <= end_ns
        ]
        medians.append((on, statistics.median(inside) if len(inside) >= MIN_REQUESTS else None))
    return paired_values("TPOT p50", medians)


def paired_values(what: str, values: list[tuple[bool, float | None]]) -> Paired:
    """
    Raises:
        ValueError: fewer than two pairs have a value.

    Args:
        values: of each slice in order, whether it was on and its value in microseconds; None where it has none.
    """
    differences = []
    for (on, one), (_, other) in zip(values[::2], values[1::2], strict=False):
        if one is not None and other is not None:
            differences.append(one - other if on else other - one)
    if len(differences) < 2:
        raise ValueError(
            f"{what}: {len(differences)} pairs of slices have enough of it; take longer slices or a higher rate"
        )
    off_us = statistics.mean(v for on, v in values if not on and v is not None)
    half = stats.t.ppf(0.975, len(differences) - 1) * statistics.stdev(differences) / len(differences) ** 0.5
    return Paired(what, off_us, statistics.mean(differences), float(half), len(differences))
