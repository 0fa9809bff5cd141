"""Turns simulated days into figures (waiting, E2E, SLO violations, load imbalance) and means over days."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from connector_tax.base.documents.fleet import Mean
from connector_tax.base.statistics.laws import student_quantile
from connector_tax.base.units import NS_PER_S
from connector_tax.fleet.patterns import Request
from connector_tax.fleet.simulation import Day

# Completions over arrivals from which on nothing is saturated; same share as for a measured cell.
KEPT_UP = 0.95
METRICS = (
    "requests",
    *("wait_mean_s", "wait_p90_s", "e2e_mean_s", "e2e_p90_s", "violations", "goodput_per_s", "kept_up"),
    "hotspot",
)


def mean_of(values: ArrayLike, confidence: float) -> Mean | None:
    """Average over days with Student's t interval; NaN is a day without the figure. None if all are NaN."""
    known_values = np.asarray(values, dtype=np.float64)
    known_values = known_values[~np.isnan(known_values)]
    n_days = known_values.size
    if n_days == 0:
        return None
    point = float(known_values.mean())
    if n_days < 2:
        return Mean(point, None, None, n_days)
    half_width = (
        float(student_quantile(0.5 + confidence / 2, n_days - 1))
        * float(known_values.std(ddof=1))
        / math.sqrt(n_days)
    )
    return Mean(point, point - half_width, point + half_width, n_days)


def mean_of_shares(shares: ArrayLike, counts: ArrayLike, confidence: float) -> Mean | None:
    """Average shares, with interval bounds in [0, 1].

    If the share was 0 or 1 on every day, the open bound is that of as many draws (Clopper & Pearson 1934).

    Args:
        counts: requests behind each day's share.
    """
    mean = mean_of(shares, confidence)
    if mean is None or mean.low is None or mean.high is None:
        return mean
    low, high = max(mean.low, 0.0), min(mean.high, 1.0)
    unseen = 1 - ((1 - confidence) / 2) ** (1 / float(np.nansum(counts)))
    if mean.point == 0:
        high = unseen
    elif mean.point == 1:
        low = 1 - unseen
    return Mean(mean.point, low, high, mean.days)


def figures_of(day: Day, window_s: float, requests: Sequence[Request] | None = None) -> dict[str, float]:
    """Compute the ``METRICS`` of one day; NaN without requests.

    ``violations`` is a share of requests. ``goodput_per_s`` counts those within their SLO. ``kept_up`` is the
    number of requests that ended in the window over those that came in it, of the whole day also with
    ``requests``. ``hotspot`` is the highest mean load of an instance over the mean of all; 1 is even.

    Args:
        requests: a subset of the day's.
    """
    chosen = day.requests if requests is None else requests
    mean_load = float(np.mean(day.loads))
    hotspot = max(day.loads) / mean_load if mean_load else math.nan
    of_all = {"kept_up": day.ended / len(day.requests) if day.requests else math.nan, "hotspot": hotspot}
    if not chosen:
        return {**dict.fromkeys(METRICS, math.nan), "requests": 0.0, "goodput_per_s": 0.0, **of_all}
    wait_s = np.array([((r.t_start_ns or 0) - r.t_sched_ns) / NS_PER_S for r in chosen])
    e2e_s = np.array([((r.t_end_ns or 0) - r.t_sched_ns) / NS_PER_S for r in chosen])
    within_slo = e2e_s <= np.array([r.pattern.slo_s for r in chosen])
    return {
        "requests": float(len(chosen)),
        "wait_mean_s": float(wait_s.mean()),
        "wait_p90_s": float(np.quantile(wait_s, 0.9)),
        "e2e_mean_s": float(e2e_s.mean()),
        "e2e_p90_s": float(np.quantile(e2e_s, 0.9)),
        "violations": float(1 - within_slo.mean()),
        "goodput_per_s": float(within_slo.sum() / window_s),
        **of_all,
    }
