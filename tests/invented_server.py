"""An invented server with given TTFT, TPOT and capacity; arrivals beyond its capacity queue.

Turns its behaviour in one cell into request records, metrics samples and lines of the step file.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from connector_tax.base.records.cell import CellSpec, CellWindow
from connector_tax.base.records.request import RequestRecord
from connector_tax.base.units import NS_PER_MS, NS_PER_S, s_to_ns

StepLines = Callable[[CellWindow, "Behaviour", np.random.Generator, int], Iterable[str]]


@dataclass(frozen=True)
class Behaviour:
    """The behaviour of one configuration's server.

    Attributes:
        noise: relative spread (log-normal) of each request's TTFT and TPOT, and of each step.
        capacity_per_s: arrivals above this queue.
        ttft_ms: of an idle server, for any prompt length.
        hooks_us: (build_connector_meta, get_finished, start_load_kv) of every step; None: no connector.
    """

    ttft_ms: float = 100.0
    tpot_ms: float = 10.0
    noise: float = 0.1
    capacity_per_s: float = float("inf")
    step_us: float = 9000.0
    hooks_us: tuple[float, float, float] | None = None

    def taxed(self, ratio: float, hooks_us: tuple[float, float, float] = (50.0, 30.0, 20.0)) -> "Behaviour":
        """Return the same server, slower by ``ratio`` in everything."""
        return replace(
            self,
            ttft_ms=self.ttft_ms * (1 + ratio),
            tpot_ms=self.tpot_ms * (1 + ratio),
            step_us=self.step_us * (1 + ratio),
            hooks_us=hooks_us,
        )


def cell_window(t0_ns: int, spec: CellSpec, behaviour: Behaviour) -> CellWindow:
    """Return the window; warm-up lasts at least until the first request has completed."""
    first_s = 1.5 * (behaviour.ttft_ms + behaviour.tpot_ms * (spec.output_tokens - 1)) / 1000
    start_ns = t0_ns + s_to_ns(max(spec.warmup_s, first_s))
    length_s = min(max(spec.duration_s, spec.min_completed / load_rate(spec, behaviour)), spec.max_cell_s)
    stop_ns = start_ns + s_to_ns(length_s)
    return CellWindow(t0_ns, start_ns, stop_ns, stop_ns + s_to_ns(spec.drain_timeout_s), True)


def load_rate(spec: CellSpec, behaviour: Behaviour) -> float:
    """Return the arrival rate; in a closed loop a request follows the one before at once."""
    if spec.concurrency is None:
        return spec.rate_per_s
    return spec.concurrency * 1000 / (behaviour.ttft_ms + behaviour.tpot_ms * (spec.output_tokens - 1))


def requests_of(
    spec: CellSpec, window: CellWindow, behaviour: Behaviour, rng: np.random.Generator
) -> tuple[list[RequestRecord], Callable[[int], int]]:
    """Return records of constant arrivals into one queue, and a function time -> waiting requests."""
    gap_ns = NS_PER_S / load_rate(spec, behaviour)
    n = int((window.t_stop_ns - window.t0_ns) / gap_ns)
    sched = window.t0_ns + np.arange(n) * gap_ns
    service = NS_PER_S / behaviour.capacity_per_s
    # Start k is the later of its arrival and one service time after start k - 1.
    start = np.maximum.accumulate(sched - np.arange(n) * service) + np.arange(n) * service
    first = start + behaviour.ttft_ms * NS_PER_MS * rng.lognormal(0, behaviour.noise, n)
    tpot = behaviour.tpot_ms * NS_PER_MS * rng.lognormal(0, behaviour.noise, n)
    last = first + tpot * (spec.output_tokens - 1)
    requests = []
    for k in range(n):
        t_sched, done = int(sched[k]), last[k] <= window.drained_ns
        requests.append(
            RequestRecord(
                seq=k,
                t_sched_ns=t_sched,
                t_send_ns=t_sched + 100_000,
                t_first_token_ns=int(first[k]) if done else None,
                t_last_token_ns=int(last[k]) if done else None,
                t_end_ns=int(last[k]) if done else window.drained_ns,
                status="ok" if done else "timeout",
                prompt_tokens=spec.input_tokens if done else None,
                completion_tokens=spec.output_tokens if done else None,
                inflight_at_send=0,
                worker=0,
                phase=window.phase_of(t_sched),
            )
        )
    return requests, lambda t_ns: int(((sched <= t_ns) & (start > t_ns)).sum())


def metrics_lines(
    window: CellWindow,
    waiting: Callable[[int], int],
    host: Callable[[int, int], dict[str, Any]] | None,
    running: int,
) -> list[str]:
    lines = []
    for t_ns in range(window.t0_ns, window.drained_ns, NS_PER_S):
        values = {"num_requests_running": float(running), "num_requests_waiting": float(waiting(t_ns))}
        row = {"t_ns": t_ns, "ok": True, "values": {**values, "prefix_cache_hits": 0.0}}
        told = {} if host is None else {"host": host(t_ns, window.window_start_ns)}
        lines.append(json.dumps({**row, **told}, separators=(",", ":")))
    return lines


def step_lines(
    window: CellWindow, behaviour: Behaviour, rng: np.random.Generator, max_steps: int
) -> list[str]:
    """Return back-to-back steps from ``t0``: every tenth has a prompt; worker rows if it has a connector."""
    processes = ["scheduler"] + (["worker"] if behaviour.hooks_us else [])
    lines = [
        f'{{"kind":"header","schema":1,"process":"{p}","pid":7,"monotonic_ns":1,"utc_ns":1,'
        '"engine_version":"0.32.0","async_scheduling":false,"patch_sha256":"p","source":"patch"}'
        for p in processes
    ]
    n = min(max_steps, int((window.t_stop_ns - window.t0_ns) / (behaviour.step_us * 1000)))
    spacing_ns = (window.t_stop_ns - window.t0_ns) // max(n, 1)
    build, finished, load = behaviour.hooks_us or (0.0, 0.0, 0.0)
    durations = behaviour.step_us * rng.lognormal(0, behaviour.noise, n)
    for k in range(n):
        t_ns = window.t0_ns + k * spacing_ns
        prefill = 256 if k % 10 == 0 else 0
        lines.append(
            f'{{"kind":"step","process":"scheduler","pid":7,"step_id":{k},"t_ns":{t_ns},"schedule_us":40.000,'
            f'"t_update_ns":{t_ns + int(durations[k] * 1000)},"update_us":20.000,'
            f'"step_duration_us":{durations[k]:.3f},"step_interval_us":null,'
            f'"round_trip_us":{durations[k] - 60:.3f},"build_meta_us":{build:.3f},"get_finished_us":null,'
            f'"start_load_kv_us":null,"num_running":4,"num_waiting":0,"prefill_tokens":{prefill},'
            '"decode_tokens":4}'
        )
        if behaviour.hooks_us:
            lines.append(
                f'{{"kind":"worker_step","process":"worker","pid":7,"step_id":{k},"t_ns":{t_ns + 50_000},'
                f'"start_load_kv_us":{load:.3f},"get_finished_us":{finished:.3f}}}'
            )
    return lines
