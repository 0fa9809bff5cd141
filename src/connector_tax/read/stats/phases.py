"""Averages the phase of arrival out of TTFT, from step records; shown beside TTFT as measured.

A request waits until the engine next looks at its queue, when the next step begins. With Poisson arrivals it
came at a uniform time since the previous look, whatever the engine does. So every possible wait counts
instead of the actual one.

Nobody records when the engine received a request, so the delivery time is estimated. It ends before the look
that took the request and after the look before, uniformly in between: the median of both ends over all
requests is that time. If it varies some requests contradict the estimate; their share shows its reliability.
Source: Casella & Robert 1996, Rao-Blackwellisation of sampling schemes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from connector_tax.base.records.cell import CellSpec, CellWindow
from connector_tax.base.records.request import RequestRecord
from connector_tax.base.statistics.bootstrap import (
    Draw,
    Estimate,
    estimate_percentiles,
    small_sample_factor,
    unavailable,
)
from connector_tax.base.statistics.resampling import Floats, Ints
from connector_tax.base.steptime.columns import Rows
from connector_tax.base.units import NS_PER_MS

NAME = "ttft_phase_averaged_ms"
PHASES = 10
# Spreads each request's phases between those of the others; steps of equal length would give only ten values.
GOLDEN = 0.6180339887
FEWEST = 20
# Tolerance as a share of the time between looks. A delivery further outside means that the request waited for
# several looks; it keeps its own TTFT.
TOLERANCE = 0.25
# More requests without a step that took them whole indicate a queue, or lost records.
MOST_UNMATCHED = 0.05
# At 0.09 the delivery time is no better known than p90 itself (tests/perf/coverage.py).
MOST_CONTRADICTING = 0.05


@dataclass(frozen=True, slots=True)
class Sent:
    """All requests of a cell, in order.

    Attributes:
        late_ns: actual minus scheduled send.
        first_ns: of the first token; 0 if the request failed.
        counts: marks requests in the window that have a TTFT or failed.
    """

    send_ns: Ints
    late_ns: Ints
    first_ns: Ints
    prompt_tokens: Ints
    counts: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Averaged:
    """TTFT under all phases.

    Attributes:
        ttft_ms: under every phase, shape (requests, phases); as measured if the engine took a request at
            once, or at an unknown time.
        pull_ms: each request's influence on the delivery time, times the number of requests; shape
            (requests,).
    """

    ttft_ms: Floats
    pull_ms: Floats


def sent(spec: CellSpec, window: CellWindow, requests: Sequence[RequestRecord]) -> Sent | None:
    """Return the requests; None unless arrivals are Poisson, since other phases depend on earlier steps."""
    if spec.arrival != "poisson" or spec.sessions is not None:
        return None
    rows = [
        (
            r.t_send_ns or r.t_sched_ns,
            r.t_sched_ns,
            (r.t_first_token_ns or 0) if r.ttft_ns is not None else 0,
            r.prompt_tokens or 0,
            r.ttft_ns is not None or r.status != "ok",
        )
        for r in requests
    ]
    send_ns, due_ns, first_ns, prompt_tokens, known = np.array(rows, dtype=np.int64).reshape(-1, 5).T
    inside = (window.window_start_ns <= due_ns) & (due_ns < window.t_stop_ns)
    return Sent(send_ns, send_ns - due_ns, first_ns, prompt_tokens, inside & (known > 0))


def averaged(requests: Sent, steps: Rows) -> Averaged | str:
    """Return the averages, or the code of why the records do not show when the engine took requests."""
    order = np.argsort(steps.ints["t_ns"], kind="stable")
    look_ns, ids, prefill, decode = (
        steps.ints[n][order] for n in ("t_ns", "step_id", "prefill_tokens", "decode_tokens")
    )
    ended_ns = steps.ints["t_update_ns"][order] + np.nan_to_num(steps.floats["update_us"][order]) * 1e3
    taking = np.flatnonzero(prefill > 0)
    if not taking.size or not requests.counts.any():
        return "phases_unknown"
    # The last step with a prompt that had ended when the first token came.
    taking_index = np.searchsorted(ended_ns[taking], requests.first_ns, side="right") - 1
    step = taking[np.maximum(taking_index, 0)]
    matched = (taking_index >= 0) & (step > 0) & (requests.send_ns <= look_ns[step])
    prompt_tokens_of_step = np.bincount(step[matched], requests.prompt_tokens[matched], look_ns.size)
    matched &= (prompt_tokens_of_step[step] == prefill[step]) & (ids[step] == ids[step - 1] + 1)
    counts = requests.counts
    step, matched, first_ns = step[counts], matched[counts], requests.first_ns[counts]
    until = (look_ns[step] - requests.send_ns[counts]) / NS_PER_MS
    length = (look_ns[step] - look_ns[step - 1]) / NS_PER_MS
    # Without other running requests the engine may have waited for this one.
    even = matched & (decode[step] > 0)
    delivery = 0.0
    for _ in range(3):
        if even.any():
            delivery = delivery_ms(until[even], length[even])
            beyond = np.maximum(until - length - delivery, delivery - until) > TOLERANCE * length
            matched, even = matched & ~(even & beyond), even & ~beyond
    if (~matched & (first_ns > 0)).mean() > MOST_UNMATCHED:
        return "phases_unknown"
    if even.sum() < max(FEWEST, even.size / 2):
        return "few_waits"
    pull = np.where(even, length * ((until - length >= delivery) * 1.0 - (until < delivery)), 0.0)
    if (pull != 0).sum() > MOST_CONTRADICTING * even.sum():
        return "delivery_varies"
    late_ms = requests.late_ns[counts] / NS_PER_MS
    measured = np.where(first_ns > 0, (first_ns - requests.send_ns[counts]) / NS_PER_MS + late_ms, np.inf)
    without_wait = measured - until + delivery
    phases = (np.arange(PHASES) + (np.arange(even.size) * GOLDEN % 1)[:, None]) / PHASES
    ttft = np.where(even[:, None], without_wait[:, None] + length[:, None] * phases, measured[:, None])
    return Averaged(ttft, pull * even.size / even.sum())


def delivery_ms(until: Floats, length: Floats) -> float:
    """Return the mean time from sending a request to the engine's receipt.

    Args:
        until: from sending to the look that took it, shape (n,).
        length: from the look before to that one.
    """
    ends = np.concatenate([until - length, until])
    order = np.argsort(ends)
    weights = np.cumsum(np.tile(length, 2)[order])
    # Sums of the same numbers in another order differ in the last digit.
    middle = np.searchsorted(weights, weights[-1] / 2 * np.array([1 - 1e-9, 1 + 1e-9]))
    return float(ends[order[middle]].mean())


def estimate(
    found: Averaged | str,
    n: int,
    qs: tuple[float, ...],
    draws: int,
    rng: np.random.Generator,
    *,
    length: int,
    factor: float,
    draw: Draw,
    confidence: float,
) -> dict[float, Estimate]:
    """Return ``estimate_percentiles`` of the averages.

    A block holds all phases of its requests, and each resample has its own delivery time.

    Args:
        n: requests, all that is known without averages.
    """
    if isinstance(found, str):
        return dict.fromkeys(qs, unavailable(found, n))
    length = min(length, n // 5)
    starts = draw(n, draws, rng, length)
    wrapped_sums = np.cumsum(np.concatenate([[0.0], found.pull_ms, found.pull_ms[:length]]))
    block_sums = wrapped_sums[length : length + n] - wrapped_sums[:n]
    shift = block_sums[starts].mean(axis=0) / length * factor * small_sample_factor(n, length, confidence)
    estimates = estimate_percentiles(
        found.ttft_ms.ravel(),
        qs,
        draws,
        rng,
        length=length * PHASES,
        factor=factor,
        draw=lambda *_: starts * PHASES,
        confidence=confidence,
    )
    return {
        q: replace(e, n=n, replicates=e.replicates + shift if e.point is not None else e.replicates)
        for q, e in estimates.items()
    }
