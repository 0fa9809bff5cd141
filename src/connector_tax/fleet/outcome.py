"""Days to figures: waiting, E2E, SLO violations, how unevenly instances are loaded; means over days with intervals."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from connector_tax.fleet.patterns import Request
from connector_tax.fleet.simulation import Day
from connector_tax.units import NS_PER_S

METRICS = (
    *("wait_mean_s", "wait_p90_s", "e2e_mean_s", "e2e_p90_s", "violations", "goodput_per_s", "kept_up"),
    "hotspot",
)


@dataclass(frozen=True, slots=True)
class Mean:
    """Over independent days, with Student's t.

    Attributes:
        low, high: None with fewer than two days.
    """

    point: float
    low: float | None
    high: float | None
    days: int

    @classmethod
    def of(cls, values: ArrayLike, confidence: float) -> "Mean":
        found = np.asarray(values, dtype=np.float64)
        point, n = float(found.mean()), found.size
        if n < 2:
            return cls(point, None, None, n)
        half = float(stats.t.ppf(0.5 + confidence / 2, n - 1)) * float(found.std(ddof=1)) / math.sqrt(n)
        return cls(point, point - half, point + half, n)

    def within(self, least: float, most: float) -> "Mean":
        """With ends that a share can have."""
        low, high = (None if end is None else min(max(end, least), most) for end in (self.low, self.high))
        return Mean(self.point, low, high, self.days)


def figures_of(
    day: Day, window_s: float, requests: Sequence[Request] | None = None, *, outside_s: float = 0.0
) -> dict[str, float]:
    """Every figure of ``METRICS`` of one day; NaN where no request came.

    ``violations`` is a share of requests; ``goodput_per_s`` counts those within their SLO; ``kept_up`` is how many requests
    ended in the window over how many came in it, and says the same of a part of them as of all; ``hotspot`` is the
    highest mean load of an instance over the mean of all, 1 where all are loaded alike.

    Args:
        requests: some of the day's, for one pattern; all by default.
        outside_s: what every request needs beside what was simulated; part of its waiting.
    """
    chosen = day.requests if requests is None else requests
    mean_load = float(np.mean(day.loads))
    hotspot = max(day.loads) / mean_load if mean_load else math.nan
    of_all = {"kept_up": day.ended / len(day.requests) if day.requests else math.nan, "hotspot": hotspot}
    if not chosen:
        return {**dict.fromkeys(METRICS, math.nan), "goodput_per_s": 0.0, **of_all}
    wait_s = np.array([((r.t_start_ns or 0) - r.t_sched_ns) / NS_PER_S for r in chosen]) + outside_s
    e2e_s = np.array([((r.t_end_ns or 0) - r.t_sched_ns) / NS_PER_S for r in chosen]) + outside_s
    kept = e2e_s <= np.array([r.pattern.slo_s for r in chosen])
    return {
        "wait_mean_s": float(wait_s.mean()),
        "wait_p90_s": float(np.quantile(wait_s, 0.9)),
        "e2e_mean_s": float(e2e_s.mean()),
        "e2e_p90_s": float(np.quantile(e2e_s, 0.9)),
        "violations": float(1 - kept.mean()),
        "goodput_per_s": float(kept.sum() / window_s),
        **of_all,
    }
