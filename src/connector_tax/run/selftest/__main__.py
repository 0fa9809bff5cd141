"""Measures the load generator's accuracy on this host: ``python -m connector_tax.run.selftest``.

Loads the truth server, which takes its own stamps on the same clock, and prints the errors of the client's
times and its CPU cost. Run it on the campaign's idle host before trusting small differences. The exit code is
1 if a figure exceeds its limit.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from connector_tax.base.errors import ConnectorTaxError, EngineError
from connector_tax.base.records.cell import CellSpec
from connector_tax.base.records.request import RequestRecord
from connector_tax.base.records.target import target_of
from connector_tax.run.loadgen.cell import measure_cell
from connector_tax.run.loadgen.messages import Observe

Array = NDArray[np.float64]
# Microseconds, like the effects that such errors would hide.
LIMITS = {
    "dispatch p50": 50,
    "dispatch p99": 300,
    "TTFT p50": 200,
    "TTFT p99": 600,
    "TPOT p99": 2,
    "ITL p99": 200,
}


@dataclass(frozen=True, slots=True)
class Truth:
    """The server's view of one request; CLOCK_MONOTONIC nanoseconds."""

    first_byte_ns: int
    last_byte_ns: int
    writes_ns: list[int]


@dataclass(frozen=True, slots=True)
class Seen:
    """The client's view of one request; CLOCK_MONOTONIC nanoseconds, ``tokens_ns`` one per token or empty."""

    seq: int
    t_sched_ns: int
    t_send_ns: int
    t_first_token_ns: int
    tpot_ns: float
    tokens_ns: Sequence[int]


@dataclass(frozen=True, slots=True)
class Errors:
    """Client minus server; microseconds, shape (requests,), ``itl`` shape (gaps of all requests,).

    Attributes:
        lateness: hand-over to the socket against the schedule, by the client's stamps.
        dispatch: first byte out of the server's socket against the schedule, with transport.
        ttft: client's TTFT from the send, against last request byte to first token written.
        tpot: mean gap, against that of the writes.
        itl: every gap between tokens, including errors of tokens read together; empty if
            token times were not kept.
    """

    lateness: Array
    dispatch: Array
    ttft: Array
    tpot: Array
    itl: Array

    @property
    def jitter(self) -> Array:
        return np.abs(self.dispatch - np.median(self.dispatch))


@contextmanager
def truth_server(ttft_ms: float, itl_ms: float, stamps: Path) -> Iterator[str]:
    """Run the truth server in its own process; yield its URL. It writes ``stamps`` when it ends."""
    command = [sys.executable, "-m", "connector_tax.run.selftest.truth_server", "--out", str(stamps)]
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
    """Return the truth by request id."""
    truth = {}
    for line in stamps.read_text().splitlines():
        row = json.loads(line)
        truth[row["id"]] = Truth(row["first_byte_ns"], row["last_byte_ns"], row["writes_ns"])
    return truth


def seen_of(records: Iterable[RequestRecord], token_ns: dict[int, Sequence[int]]) -> list[Seen]:
    """Return the load generator's records, with token times where kept.

    Raises:
        EngineError: a request failed, so there is nothing to compare.
    """
    seen = []
    for r in records:
        if r.status != "ok" or r.t_send_ns is None or r.t_first_token_ns is None or r.tpot_ns is None:
            raise EngineError(f"request {r.seq} to the truth server ended as {r.status}: {r.error}")
        seen.append(
            Seen(r.seq, r.t_sched_ns, r.t_send_ns, r.t_first_token_ns, r.tpot_ns, token_ns.get(r.seq, ()))
        )
    return seen


def errors(seed: int, seen: Iterable[Seen], truth: dict[str, Truth]) -> Errors:
    """Compare what client and server saw, matched by request id."""
    rows = []
    gaps = [np.empty(0)]
    for one in seen:
        true = truth[f"{seed:x}-{one.seq}"]
        true_tpot_ns = (true.writes_ns[-1] - true.writes_ns[0]) / (len(true.writes_ns) - 1)
        rows.append(
            (
                one.t_send_ns - one.t_sched_ns,
                true.first_byte_ns - one.t_sched_ns,
                (one.t_first_token_ns - one.t_send_ns) - (true.writes_ns[0] - true.last_byte_ns),
                one.tpot_ns - true_tpot_ns,
            )
        )
        if one.tokens_ns:
            gaps.append((np.diff(one.tokens_ns) - np.diff(true.writes_ns)) / 1e3)
    table = np.array(rows, dtype=np.float64) / 1e3
    lateness, dispatch, ttft, tpot = table.T
    return Errors(lateness, dispatch, ttft, tpot, np.concatenate(gaps))


def print_table(found: Errors) -> None:
    """Print quantiles of each error in microseconds."""
    print(f"{'microseconds':34} {'p50':>9} {'p90':>9} {'p99':>9} {'max':>9}")
    for name, values in (
        ("late by the client's own stamps", found.lateness),
        ("arrival at the server - schedule", found.dispatch),
        ("  the same, median offset removed", found.jitter),
        ("TTFT, client - server", found.ttft),
        ("TPOT, client - server, absolute", np.abs(found.tpot)),
        ("ITL, client - server, absolute", np.abs(found.itl)),
    ):
        p50, p90, p99 = np.percentile(values, (50, 90, 99))
        print(f"{name:34} {p50:9.2f} {p90:9.2f} {p99:9.2f} {values.max():9.2f}")


def beyond(errors: Errors) -> dict[str, float]:
    of = {"dispatch": errors.jitter, "TTFT": errors.ttft, "TPOT": errors.tpot, "ITL": errors.itl}
    found = {}
    for figure in LIMITS:
        name, _, percent = figure.partition(" p")
        found[figure] = float(np.percentile(np.abs(of[name]), int(percent)))
    return {figure: value for figure, value in found.items() if value > LIMITS[figure]}


def accuracy(spec: CellSpec, ttft_ms: float, itl_ms: float) -> tuple[Errors, float]:
    """Measure this client with ``spec``; return its errors and CPU milliseconds per 1000 tokens."""
    with tempfile.TemporaryDirectory() as folder:
        stamps = Path(folder) / "stamps.jsonl"
        with truth_server(ttft_ms, itl_ms, stamps) as url:
            outcome = measure_cell(spec, target_of(url, "truth"), observe=Observe(token_times=True))
        seen = seen_of(outcome.requests, dict(outcome.session.token_ns))
        cost = outcome.session.client_cpu_s * 1e6 / (len(seen) * spec.output_tokens)
        return errors(spec.seed, seen, read_truth(stamps)), cost


def spec_of(
    rate_per_s: float, input_tokens: int, output_tokens: int, duration_s: float, workers: int
) -> CellSpec:
    """Return a cell of constant arrivals against the truth server."""
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
    spec = spec_of(args.rate, int(input_tokens), int(output_tokens), args.duration, args.workers)
    print(f"{args.rate:g} req/s, {args.shape} tokens, TTFT {args.ttft_ms:g} ms, ITL {args.itl_ms:g} ms")
    found, cost = accuracy(spec, args.ttft_ms, args.itl_ms)
    print_table(found)
    print(f"{found.ttft.size} requests; client CPU {cost:.2f} ms per 1000 tokens")
    wrong = beyond(found)
    for figure, value in wrong.items():
        print(f"beyond its limit: {figure}: {value:.3g} us, limit {LIMITS[figure]}")
    print(f"{len(LIMITS) - len(wrong)} of {len(LIMITS)} figures within their limits")
    if wrong:
        sys.exit(1)


if __name__ == "__main__":
    try:
        main()
    except ConnectorTaxError as error:
        sys.exit(f"error: {error}")
