"""What the load generator's own figures are worth on this host: ``python -m connector_tax.run.selftest``.

Loads the truth server, which stamps its own side on the same clock, and prints by how much the client's times differ
from what happened, what the client costs, and what the least client possible (``yardstick``) errs and costs in the
same minutes. Read it before trusting a campaign's small numbers, on the campaign's host and with nothing else
running. Exit code 1 where a figure is beyond its limit.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from connector_tax.base.errors import ConnectorTaxError, EngineError
from connector_tax.base.records.cell import CellSpec
from connector_tax.base.records.request import RequestRecord
from connector_tax.base.records.target import target_of
from connector_tax.run.loadgen.cell import measure_cell
from connector_tax.run.loadgen.messages import Observe
from connector_tax.run.selftest.yardstick import Took

Array = NDArray[np.float64]
CAPACITY_TOKENS = 64
CAPACITY_INFLIGHT = 64


@dataclass(frozen=True, slots=True)
class Truth:
    """What the server saw of one request; CLOCK_MONOTONIC nanoseconds."""

    first_byte_ns: int
    last_byte_ns: int
    writes_ns: list[int]


@dataclass(frozen=True, slots=True)
class Seen:
    """What a client saw of one request; CLOCK_MONOTONIC nanoseconds, ``tokens_ns`` one per token or empty."""

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
        lateness: handed to the socket, against the schedule, by the client's own stamps.
        dispatch: first byte out of the server's socket, against the schedule; transport included.
        ttft: client's TTFT from the send, against last request byte to first token written.
        tpot: mean gap, against that of the writes.
        itl: every gap between tokens, those of one read included, which are errors; empty where the client did not keep token times.
    """

    lateness: Array
    dispatch: Array
    ttft: Array
    tpot: Array
    itl: Array

    @property
    def jitter(self) -> Array:
        """Dispatch, its median offset removed, absolute."""
        return np.abs(self.dispatch - np.median(self.dispatch))


@dataclass(frozen=True, slots=True)
class Cost:
    """Responses per second where capacity was asked for; CPU milliseconds per 1000 events (tokens)."""

    responses_per_s: float
    cpu_ms_per_1000: float


@dataclass(frozen=True, slots=True)
class Judged:
    """One figure and its limit: ``found`` must not be above it, or below it where ``least``."""

    name: str
    found: float
    limit: float
    least: bool = False

    @property
    def ok(self) -> bool:
        return self.found >= self.limit if self.least else self.found <= self.limit


@contextmanager
def truth_server(ttft_ms: float, itl_ms: float, stamps: Path) -> Iterator[str]:
    """Run the truth server in a process of its own; yields its URL, writes ``stamps`` when it ends."""
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
    """By request id."""
    truth = {}
    for line in stamps.read_text().splitlines():
        row = json.loads(line)
        truth[row["id"]] = Truth(row["first_byte_ns"], row["last_byte_ns"], row["writes_ns"])
    return truth


def seen_of(records: Iterable[RequestRecord], token_ns: dict[int, Sequence[int]]) -> list[Seen]:
    """The load generator's own records, with the token times of those that have any.

    Raises:
        EngineError: a request failed; there is nothing to compare then.
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
    """Match what a client saw with what the server did, by request id."""
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


def print_table(ours: Errors, least: Errors) -> None:
    """Quantiles of each error in microseconds, and the yardstick's beside them."""
    print(
        f"{'microseconds':34} {'p50':>9} {'p90':>9} {'p99':>9} {'max':>9}   {'yardstick p50':>13} {'p99':>9}"
    )
    for name, values, yardstick in (
        ("late by the client's own stamps", ours.lateness, least.lateness),
        ("arrival at the server - schedule", ours.dispatch, least.dispatch),
        ("  the same, median offset removed", ours.jitter, least.jitter),
        ("TTFT, client - server", ours.ttft, least.ttft),
        ("TPOT, client - server, absolute", np.abs(ours.tpot), np.abs(least.tpot)),
        ("ITL, client - server, absolute", np.abs(ours.itl), np.abs(least.itl)),
    ):
        p50, p90, p99 = np.percentile(values, (50, 90, 99))
        y50, y99 = np.percentile(yardstick, (50, 99))
        print(f"{name:34} {p50:9.2f} {p90:9.2f} {p99:9.2f} {values.max():9.2f}   {y50:13.2f} {y99:9.2f}")


def judgement(errors: Errors, cost: tuple[Cost, Cost], capacity: tuple[Cost, Cost]) -> list[Judged]:
    """The limits that this load generator is built to; ``cost`` and ``capacity`` are ours and the yardstick's.

    Times have limits of their own, since what they would blur is measured in microseconds. What the client
    costs depends on the host, so its limits are multiples of what the least client costs there.
    """
    return [
        Judged("dispatch p50, us", _quantile(errors.jitter, 50), 50),
        Judged("dispatch p99, us", _quantile(errors.jitter, 99), 300),
        Judged("TTFT p50, us", _quantile(errors.ttft, 50), 200),
        Judged("TTFT p99, us", _quantile(errors.ttft, 99), 600),
        Judged("TPOT p99, us", _quantile(errors.tpot, 99), 2),
        Judged("ITL p99, us", _quantile(errors.itl, 99), 200),
        Judged(
            "CPU per event, against the yardstick's", cost[0].cpu_ms_per_1000 / cost[1].cpu_ms_per_1000, 2.0
        ),
        Judged(
            "CPU per event at capacity, against the yardstick's",
            capacity[0].cpu_ms_per_1000 / capacity[1].cpu_ms_per_1000,
            11,
        ),
        Judged(
            "responses/s, against the yardstick's",
            capacity[0].responses_per_s / capacity[1].responses_per_s,
            0.1,
            least=True,
        ),
    ]


def _quantile(values: Array, percent: float) -> float:
    return float(np.percentile(np.abs(values), percent))


def accuracy(spec: CellSpec, ttft_ms: float, itl_ms: float) -> tuple[Errors, Cost]:
    """This client at the spec's rate and shape, keeping every token's time."""
    with tempfile.TemporaryDirectory() as folder:
        stamps = Path(folder) / "stamps.jsonl"
        with truth_server(ttft_ms, itl_ms, stamps) as url:
            outcome = measure_cell(spec, target_of(url, "truth"), observe=Observe(token_times=True))
        seen = seen_of(outcome.requests, dict(outcome.session.token_ns))
        events = len(seen) * spec.output_tokens
        cost = Cost(0.0, outcome.session.client_cpu_s * 1e6 / events)
        return errors(spec.seed, seen, read_truth(stamps)), cost


def capacity(duration_s: float, workers: int) -> Cost:
    """What this client can take in: 64 in flight, whole 64-token answers at once."""
    spec = replace(
        spec_of(0.0, 100, CAPACITY_TOKENS, duration_s, workers),
        arrival="concurrency",
        concurrency=CAPACITY_INFLIGHT,
        min_completed=1,
    )
    with tempfile.TemporaryDirectory() as folder, truth_server(0, 0, Path(folder) / "stamps") as url:
        outcome = measure_cell(spec, target_of(url, "truth"))
    responses = len(seen_of(outcome.requests, {}))
    window = outcome.window
    return Cost(
        responses / ((window.t_stop_ns - window.t0_ns) / 1e9),
        outcome.session.client_cpu_s * 1e6 / (responses * CAPACITY_TOKENS),
    )


def yardstick_accuracy(spec: CellSpec, ttft_ms: float, itl_ms: float) -> tuple[Errors, Cost]:
    """The same cell as ``accuracy`` by the least client possible."""
    with tempfile.TemporaryDirectory() as folder:
        stamps = Path(folder) / "stamps.jsonl"
        with truth_server(ttft_ms, itl_ms, stamps) as url:
            found = _yardstick(spec, url)
        seen = []
        for seq, sched_ns, send_ns, *tokens_ns in found.rows:
            tpot_ns = (tokens_ns[-1] - tokens_ns[0]) / (len(tokens_ns) - 1)
            seen.append(Seen(seq, sched_ns, send_ns, tokens_ns[0], tpot_ns, tokens_ns))
        cost = Cost(0.0, found.cpu_s * 1e6 / (len(seen) * spec.output_tokens))
        return errors(spec.seed, seen, read_truth(stamps)), cost


def yardstick_capacity(duration_s: float) -> Cost:
    """The same load as ``capacity`` by the least client possible."""
    spec = spec_of(0.0, 100, CAPACITY_TOKENS, duration_s, 1)
    with tempfile.TemporaryDirectory() as folder, truth_server(0, 0, Path(folder) / "stamps") as url:
        found = _yardstick(spec, url, "--in-flight", str(CAPACITY_INFLIGHT))
    responses = found.responses
    return Cost(responses / found.wall_s, found.cpu_s * 1e6 / (responses * CAPACITY_TOKENS))


def _yardstick(spec: CellSpec, url: str, *options: str) -> Took:
    command = [sys.executable, "-m", "connector_tax.run.selftest.yardstick", "--port", url.rpartition(":")[2]]
    command += ["--spec", json.dumps(spec.to_json()), "--duration", str(spec.duration_s), *options]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=True, timeout=spec.duration_s + 60
    )
    return msgspec.json.decode(done.stdout, type=Took)


def spec_of(
    rate_per_s: float, input_tokens: int, output_tokens: int, duration_s: float, workers: int
) -> CellSpec:
    """A cell of constant arrivals against the truth server."""
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
    least, least_cost = yardstick_accuracy(spec, args.ttft_ms, args.itl_ms)
    print_table(found, least)
    print(
        f"{found.ttft.size} requests; client CPU {cost.cpu_ms_per_1000:.2f} ms per 1000 events, "
        f"yardstick {least_cost.cpu_ms_per_1000:.2f}"
    )
    most = capacity(min(args.duration, 10.0), args.workers)
    least_most = yardstick_capacity(min(args.duration, 10.0))
    print(
        f"capacity, {CAPACITY_INFLIGHT} in flight, {CAPACITY_TOKENS}-token answers at once: "
        f"{most.responses_per_s:,.0f} responses/s, {most.cpu_ms_per_1000:.2f} CPU s per million events; "
        f"yardstick {least_most.responses_per_s:,.0f} and {least_most.cpu_ms_per_1000:.2f}"
    )
    judged = judgement(found, (cost, least_cost), (most, least_most))
    beyond = [j for j in judged if not j.ok]
    for j in beyond:
        print(f"beyond its limit: {j.name}: {j.found:.3g}, limit {'at least ' if j.least else ''}{j.limit:g}")
    print(f"{len(judged) - len(beyond)} of {len(judged)} figures within their limits")
    if beyond:
        sys.exit(1)


if __name__ == "__main__":
    try:
        main()
    except ConnectorTaxError as error:
        sys.exit(f"error: {error}")
