"""What the load generator's own figures are worth on this host: ``python -m connector_tax.loadgen.selftest``.

Loads the truth server, which stamps its own side on the same clock, and prints by how much the client's
times differ from what happened. Read it before trusting a campaign's small numbers, on the campaign's
host and with nothing else running.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from connector_tax.loadgen.cell import CellOutcome, measure_cell
from connector_tax.loadgen.session import Observe
from connector_tax.records.cell import CellSpec

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Truth:
    """What the server saw of one request; CLOCK_MONOTONIC nanoseconds."""

    first_byte_ns: int
    last_byte_ns: int
    writes_ns: list[int]


@dataclass(frozen=True, slots=True)
class Errors:
    """Client minus server; microseconds, shape (requests,), ``itl`` shape (gaps of all requests,).

    Attributes:
        lateness: handed to the socket, against the schedule, by the client's own stamps.
        dispatch: first byte out of the server's socket, against the schedule; transport included.
        ttft: client's TTFT from the send, against last request byte to first token written.
        tpot: mean gap, against that of the writes.
        itl: every gap between tokens; empty where the client did not keep token times.
    """

    lateness: Array
    dispatch: Array
    ttft: Array
    tpot: Array
    itl: Array


@contextmanager
def truth_server(ttft_ms: float, itl_ms: float, stamps: Path) -> Iterator[str]:
    """Run the truth server in a process of its own; yields its URL, writes ``stamps`` when it ends."""
    command = [sys.executable, "-m", "connector_tax.loadgen.truth_server", "--out", str(stamps)]
    command += ["--ttft-ms", str(ttft_ms), "--itl-ms", str(itl_ms)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


def read_truth(stamps: Path) -> dict[str, Truth]:
    """By request id."""
    truth = {}
    for line in stamps.read_text().splitlines():
        row = json.loads(line)
        truth[row["id"]] = Truth(row["first_byte_ns"], row["last_byte_ns"], row["writes_ns"])
    return truth


def errors(spec: CellSpec, outcome: CellOutcome, truth: dict[str, Truth]) -> Errors:
    """Match the client's records with the server's by request id.

    Raises:
        AssertionError: a request failed; there is nothing to compare then.
    """
    rows = []
    gaps = [np.empty(0)]
    for record in outcome.requests:
        assert record.status == "ok", record
        assert record.t_send_ns is not None and record.t_first_token_ns is not None
        assert record.tpot_ns is not None
        true = truth[f"{spec.seed:x}-{record.seq}"]
        true_tpot_ns = (true.writes_ns[-1] - true.writes_ns[0]) / (len(true.writes_ns) - 1)
        rows.append(
            (
                record.t_send_ns - record.t_sched_ns,
                true.first_byte_ns - record.t_sched_ns,
                (record.t_first_token_ns - record.t_send_ns) - (true.writes_ns[0] - true.last_byte_ns),
                record.tpot_ns - true_tpot_ns,
            )
        )
        times = outcome.session.token_ns.get(record.seq)
        if times:
            gaps.append((np.diff(times) - np.diff(true.writes_ns)) / 1e3)
    table = np.array(rows, dtype=np.float64) / 1e3
    lateness, dispatch, ttft, tpot = table.T
    return Errors(lateness, dispatch, ttft, tpot, np.concatenate(gaps))


def print_table(found: Errors, outcome: CellOutcome) -> None:
    """Quantiles of each error in microseconds, then what the client cost."""
    print(f"{'microseconds':34} {'p50':>9} {'p90':>9} {'p99':>9} {'max':>9}")
    centred = np.abs(found.dispatch - np.median(found.dispatch))
    for name, values in (
        ("late by the client's own stamps", found.lateness),
        ("arrival at the server - schedule", found.dispatch),
        ("  the same, median offset removed", centred),
        ("TTFT, client - server", found.ttft),
        ("TPOT, client - server, absolute", np.abs(found.tpot)),
        ("ITL, client - server, absolute", np.abs(found.itl)),
    ):
        p50, p90, p99 = np.percentile(values, (50, 90, 99))
        print(f"{name:34} {p50:9.2f} {p90:9.2f} {p99:9.2f} {values.max():9.2f}")
    print(f"{len(outcome.requests)} requests, {_cost(outcome)}")


def _cost(outcome: CellOutcome) -> str:
    events = sum(r.completion_tokens or 0 for r in outcome.requests)
    cpu_s = outcome.health["client_cpu_s"]
    return f"{events} events; client CPU {cpu_s:.2f} s, {cpu_s * 1e6 / events:.2f} ms per 1000 events"


def capacity(duration_s: float, workers: int) -> None:
    """What the client can take in: 64 in flight, whole 64-token answers at once; prints rates and CPU."""
    spec = replace(
        _spec(0.0, 100, 64, duration_s, workers), arrival="concurrency", concurrency=64, min_completed=1
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        truth_server(0, 0, Path(folder) / "stamps.jsonl") as url,
    ):
        outcome = measure_cell(spec, url, "truth")
    failed = [r for r in outcome.requests if r.status != "ok"]
    assert not failed, failed[0]
    window = outcome.window
    per_s = len(outcome.requests) / ((window.t_stop_ns - window.t0_ns) / 1e9)
    print(f"{per_s:,.0f} responses/s, {per_s * 64:,.0f} events/s; {_cost(outcome)}")


def accuracy(
    rate_per_s: float,
    shape: tuple[int, int],
    duration_s: float,
    *,
    ttft_ms: float,
    itl_ms: float,
    workers: int,
) -> None:
    """The client's errors at one rate and shape; prints the table."""
    spec = _spec(rate_per_s, *shape, duration_s, workers)
    with tempfile.TemporaryDirectory() as folder:
        stamps = Path(folder) / "stamps.jsonl"
        with truth_server(ttft_ms, itl_ms, stamps) as url:
            outcome = measure_cell(spec, url, "truth", observe=Observe(token_times=True))
        print_table(errors(spec, outcome, read_truth(stamps)), outcome)


def _spec(
    rate_per_s: float, input_tokens: int, output_tokens: int, duration_s: float, workers: int
) -> CellSpec:
    return CellSpec(
        phase="a",
        rate_per_s=rate_per_s,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        arrival="fixed",
        warmup_s=1.0,
        duration_s=duration_s,
        min_completed=1,
        max_cell_s=duration_s + 60,
        drain_timeout_s=60.0,
        inflight_cap=1024,
        seed=1,
        token_id_low=1000,
        token_id_high=100_000,
        workers=workers,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rate", type=float, default=32.0, help="requests per second")
    parser.add_argument("--shape", default="4096x256", help="INPUTxOUTPUT tokens")
    parser.add_argument("--duration", type=float, default=30.0, help="seconds")
    parser.add_argument("--ttft-ms", type=float, default=100.0)
    parser.add_argument("--itl-ms", type=float, default=10.0)
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    input_tokens, _, output_tokens = args.shape.partition("x")
    shape = (int(input_tokens), int(output_tokens))
    print(f"{args.rate:g} req/s, {args.shape} tokens, TTFT {args.ttft_ms:g} ms, ITL {args.itl_ms:g} ms")
    accuracy(args.rate, shape, args.duration, ttft_ms=args.ttft_ms, itl_ms=args.itl_ms, workers=args.workers)
    print("capacity: 64 in flight, 64-token answers at once")
    capacity(min(args.duration, 10.0), args.workers)


if __name__ == "__main__":
    main()
