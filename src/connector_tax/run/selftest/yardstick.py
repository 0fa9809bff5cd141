"""The least that a client can be: ``python -m connector_tax.run.selftest.yardstick``, the self-test's measure of the host.

One process, one event loop, one timerfd; requests rendered beforehand, bytes counted and never parsed, no errors
handled, nothing kept beyond stamps. What it costs and errs by is what this host charges any Python client, so the
load generator is held against it in the same minutes and not against a number from another machine. It talks to
the truth server only, whose answers it knows.
"""

import argparse
import asyncio
import json
import sys
from time import monotonic_ns, process_time_ns
from typing import cast

import msgspec
import uvloop

from connector_tax.base.records.cell import CellSpec
from connector_tax.base.records.target import Target
from connector_tax.base.timer import DeadlineTimer
from connector_tax.run.workload.prompts import RequestRenderer

MARK = b'"choices":[{'
END = b"0\r\n\r\n"
CONNECTIONS = 128


class Took(msgspec.Struct, frozen=True):
    """What came of it.

    Attributes:
        rows: ``[seq, sched_ns, send_ns, token_ns, ...]`` of each request, where requests had times of their own.
    """

    cpu_s: float
    wall_s: float
    responses: int
    rows: list[list[int]]


class _Bare(asyncio.Protocol):
    """One connection: stamps reads, counts marks, knows the last chunk by its bytes."""

    def __init__(self, client: "_Client") -> None:
        self._client = client
        self.row: list[int] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.WriteTransport, transport)

    def send(self, seq: int, sched_ns: int, payload: bytes) -> None:
        self.row = [seq, sched_ns, monotonic_ns()]
        self.transport.write(payload)

    def data_received(self, data: bytes) -> None:
        now_ns = monotonic_ns()
        tokens = data.count(MARK)
        if tokens:
            self.row += [now_ns] * tokens
        if data.endswith(END):
            self._client.ended(self)


class _Client:
    """Sends requests 0 to ``n - 1`` each ``gap_ns``, or at any time as many as ``inflight``."""

    def __init__(self, spec: CellSpec, n: int, inflight: int) -> None:
        renderer = RequestRenderer(spec, Target("127.0.0.1", 80, "truth"))
        self._payloads = [renderer.render(seq) for seq in range(n if not inflight else 1)]
        self._n = n
        self._inflight = inflight
        self._gap_ns = round(1e9 / spec.rate_per_s) if spec.rate_per_s else 0
        self._sent = 0
        self._idle: list[_Bare] = []
        self.responses = 0
        self.rows: list[list[int]] = []
        self.over = asyncio.Event()

    async def run(self, port: int, duration_s: float) -> Took:
        loop = asyncio.get_running_loop()
        for _ in range(self._inflight or CONNECTIONS):
            _, bare = await loop.create_connection(lambda: _Bare(self), "127.0.0.1", port)
            self._idle.append(bare)
        self._timer = DeadlineTimer(loop, self._fire)
        self._t0_ns = monotonic_ns() + 20_000_000
        self._stop_ns = self._t0_ns + round(duration_s * 1e9)
        cpu_ns = process_time_ns()
        if self._inflight:
            for bare in self._idle:
                bare.send(0, 0, self._payloads[0])
        else:
            self._fire()
        await self.over.wait()
        return Took(
            cpu_s=(process_time_ns() - cpu_ns) / 1e9,
            wall_s=(monotonic_ns() - self._t0_ns) / 1e9,
            responses=self.responses,
            rows=self.rows,
        )

    def _fire(self) -> None:
        while self._sent < self._n:
            due_ns = self._t0_ns + self._sent * self._gap_ns
            if due_ns > monotonic_ns():
                self._timer.arm(due_ns)
                return
            self._idle.pop().send(self._sent, due_ns, self._payloads[self._sent])
            self._sent += 1

    def ended(self, bare: _Bare) -> None:
        self.responses += 1
        if not self._inflight:
            self.rows.append(bare.row)
            self._idle.append(bare)
            if self.responses == self._n:
                self.over.set()
        elif monotonic_ns() < self._stop_ns:
            bare.send(0, 0, self._payloads[0])
        else:
            self.over.set()


async def _measure(args: argparse.Namespace) -> None:
    spec = CellSpec.from_json(json.loads(args.spec))
    client = _Client(spec, round(spec.rate_per_s * args.duration), args.in_flight)
    took = await client.run(args.port, args.duration)
    sys.stdout.write(msgspec.json.encode(took).decode())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--spec", required=True, help="the cell as JSON")
    parser.add_argument("--duration", type=float, required=True, help="seconds")
    parser.add_argument(
        "--in-flight", type=int, default=0, help="keep as many requests going; 0: the spec's rate"
    )
    uvloop.run(_measure(parser.parse_args()))


if __name__ == "__main__":
    main()
