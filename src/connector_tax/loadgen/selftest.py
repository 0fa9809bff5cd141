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
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from connector_tax.loadgen.cell import CellOutcome, measure_cell
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
    """Client minus server, one value per request; microseconds, shape (requests,).

    Attributes:
        lateness: handed to the socket, against the schedule, by the client's own stamps.
        dispatch: first byte out of the server's socket, against the schedule; transport included.
        ttft: client's TTFT from the send, against last request byte to first token written.
        tpot: mean gap, against that of the writes.
    """

    lateness: Array
    dispatch: Array
    ttft: Array
    tpot: Array


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
    table = np.array(rows, dtype=np.float64) / 1e3
    return Errors(*table.T)


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
    ):
        p50, p90, p99 = np.percentile(values, (50, 90, 99))
        print(f"{name:34} {p50:9.2f} {p90:9.2f} {p99:9.2f} {values.max():9.2f}")
    tokens = sum(r.completion_tokens or 0 for r in outcome.requests)
    window = outcome.window
    cpu_s = outcome.health["client_cpu_share"] * (window.drained_ns - window.t0_ns) / 1e9
    print(
        f"{len(outcome.requests)} requests, {tokens} events; client CPU {cpu_s * 1e6 / tokens:.1f} ms per 1000 events"
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
    args = parser.parse_args()
    input_tokens, _, output_tokens = args.shape.partition("x")
    spec = CellSpec(
        phase="a",
        rate_per_s=args.rate,
        input_tokens=int(input_tokens),
        output_tokens=int(output_tokens),
        arrival="fixed",
        warmup_s=1.0,
        duration_s=args.duration,
        min_completed=1,
        max_cell_s=args.duration + 60,
        drain_timeout_s=60.0,
        inflight_cap=1024,
        seed=1,
        token_id_low=1000,
        token_id_high=100_000,
    )
    with tempfile.TemporaryDirectory() as folder:
        stamps = Path(folder) / "stamps.jsonl"
        with truth_server(args.ttft_ms, args.itl_ms, stamps) as url:
            outcome = measure_cell(spec, url, "truth")
        print_table(errors(spec, outcome, read_truth(stamps)), outcome)


if __name__ == "__main__":
    main()
