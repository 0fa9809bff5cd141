"""A server that stamps its own sends, as the reference for the load generator.

It has one thread, one epoll, one timerfd and non-blocking sockets, and shares only the clock with
the client. Every token is a ``send`` of its own, stamped with CLOCK_MONOTONIC just before. Requests
carry the kernel's receive stamps, since this process may be busy writing when one arrives. At SIGTERM,
or at the end of standard input, the stamps are written as JSONL: ``{"id", "first_byte_ns",
"last_byte_ns", "writes_ns": [...]}``.

    python -m connector_tax.run.selftest.truth_server --ttft-ms 100 --itl-ms 10 --out stamps.jsonl
"""

import argparse
import heapq
import json
import os
import re
import select
import signal
import socket
import struct
import sys
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic_ns, time_ns

from connector_tax.base.timer import DeadlineFd
from connector_tax.base.units import NS_PER_S

EVENT = (
    b"data:"
    b' {"id":"cmpl-0123456789abcdef","object":"text_completion","created":1700000000,"model":"truth",'
    b'"choices":[{"index":0,"text":"'
    b' token","logprobs":null,"finish_reason":null,"stop_reason":null}],"usage":null}\n\n'
)
HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
)
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d}}\n\ndata: [DONE]\n\n'
RECEIVE_BYTES = 1 << 20
BACKLOG = 1024
# Not in the socket module before Python 3.14; the same number on x86 and ARM.
SO_TIMESTAMPNS = 35
EXTRAS_BYTES = 64


def _chunk(body: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(body), body)


TOKEN = _chunk(EVENT)


@dataclass(slots=True)
class _Answer:
    """One request and what was written for it."""

    connection: socket.socket
    request_id: str
    prompt_tokens: int
    tokens: int
    first_byte_ns: int
    last_byte_ns: int
    writes_ns: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Inbox:
    """The received part of a connection's next request."""

    data: bytearray = field(default_factory=bytearray)
    first_byte_ns: int = 0


class TruthServer:
    """Answers each request with ``max_tokens`` tokens: the first after ``ttft_ns``, then every ``itl_ns``.

    With ``itl_ns == 0`` the whole answer is written at once, to find a client's capacity, without stamps.
    """

    def __init__(self, ttft_ns: int, itl_ns: int) -> None:
        self._ttft_ns = ttft_ns
        self._itl_ns = itl_ns
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self.answers: list[_Answer] = []
        self._connections: dict[int, socket.socket] = {}
        self._inboxes: dict[int, _Inbox] = {}
        self._due: list[tuple[int, int, _Answer]] = []
        self._order = 0
        self._whole: dict[tuple[int, int], bytes] = {}
        # A shared buffer: a fresh megabyte per read would cost page faults before the stamp.
        self._scratch = memoryview(bytearray(RECEIVE_BYTES))

    def serve(self, stop_fd: int) -> None:
        """Serve until ``stop_fd`` becomes readable."""
        timer = DeadlineFd()
        poll = select.epoll()
        for fd in (self._listener.fileno(), timer.fd, stop_fd):
            poll.register(fd, select.EPOLLIN)
        self._poll = poll
        while True:
            for fd, _ in poll.poll():
                if fd == stop_fd:
                    return
                if fd == timer.fd:
                    timer.clear()
                elif fd == self._listener.fileno():
                    self._accept()
                else:
                    self._receive(fd)
            self._write_due()
            if self._due:
                timer.arm(self._due[0][0])

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self._connections[connection.fileno()] = connection
        self._inboxes[connection.fileno()] = _Inbox()
        self._poll.register(connection.fileno(), select.EPOLLIN)

    def _receive(self, fd: int) -> None:
        connection, inbox = self._connections[fd], self._inboxes[fd]
        try:
            received, extras, _, _ = connection.recvmsg_into([self._scratch], EXTRAS_BYTES)
        except ConnectionError:
            received, extras = 0, []
        if not received:
            self._poll.unregister(fd)
            del self._connections[fd], self._inboxes[fd]
            connection.close()
            return
        now_ns = _arrival_ns(extras)
        if not inbox.data:
            inbox.first_byte_ns = now_ns
        inbox.data += self._scratch[:received]
        head_end = inbox.data.find(b"\r\n\r\n")
        if head_end < 0:
            return
        head = bytes(inbox.data[:head_end]).lower()
        length = _number_after(head, b"content-length:")
        if len(inbox.data) < head_end + 4 + length:
            return
        body = inbox.data[head_end + 4 :]
        inbox.data = bytearray()
        self._answer(connection, head, body, inbox.first_byte_ns, now_ns)

    def _answer(
        self, connection: socket.socket, head: bytes, body: bytearray, first_byte_ns: int, now_ns: int
    ) -> None:
        tokens = _number_after(body, b'"max_tokens":')
        prompt_tokens = body.count(b",", body.index(b'"prompt":[')) + 1
        if self._itl_ns == 0:
            self._send(connection, self._whole_answer(prompt_tokens, tokens))
            return
        answer = _Answer(
            connection,
            _request_id(head),
            prompt_tokens,
            tokens,
            first_byte_ns=first_byte_ns,
            last_byte_ns=now_ns,
        )
        self.answers.append(answer)
        self._schedule(answer, now_ns + self._ttft_ns)
        self._send(connection, HEAD)

    def _whole_answer(self, prompt_tokens: int, tokens: int) -> bytes:
        key = (prompt_tokens, tokens)
        if key not in self._whole:
            self._whole[key] = HEAD + TOKEN * tokens + _chunk(USAGE % key) + b"0\r\n\r\n"
        return self._whole[key]

    def _schedule(self, answer: _Answer, due_ns: int) -> None:
        self._order += 1
        heapq.heappush(self._due, (due_ns, self._order, answer))

    def _write_due(self) -> None:
        while self._due and self._due[0][0] <= monotonic_ns():
            due_ns, _, answer = heapq.heappop(self._due)
            answer.writes_ns.append(monotonic_ns())
            self._send(answer.connection, TOKEN)
            if len(answer.writes_ns) < answer.tokens:
                self._schedule(answer, due_ns + self._itl_ns)
            else:
                end = _chunk(USAGE % (answer.prompt_tokens, answer.tokens)) + b"0\r\n\r\n"
                self._send(answer.connection, end)

    @staticmethod
    def _send(connection: socket.socket, data: bytes) -> None:
        # A client that is gone, or whose buffer is full, gets no more.
        try:
            sent = connection.send(data)
        except OSError:
            return
        while sent < len(data):
            select.select([], [connection], [])
            sent += connection.send(data[sent:])


def _arrival_ns(extras: list[tuple[int, int, bytes]]) -> int:
    """Return the kernel's receive stamp, converted from wall time to CLOCK_MONOTONIC; without one, now."""
    for level, kind, data in extras:
        if level == socket.SOL_SOCKET and kind == SO_TIMESTAMPNS:
            seconds, nanoseconds = struct.unpack("qq", data[:16])
            return int(seconds) * NS_PER_S + int(nanoseconds) - (time_ns() - monotonic_ns())
    return monotonic_ns()


def _number_after(text: bytes | bytearray, name: bytes) -> int:
    found = re.search(re.escape(name) + rb"\s*(\d+)", text)
    if found is None:
        raise ValueError(f"a request without {name.decode()}")
    return int(found.group(1))


def _request_id(head: bytes) -> str:
    _, found, rest = head.partition(b"x-request-id:")
    return rest.split(b"\r\n", 1)[0].strip().decode() if found else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ttft-ms", type=float, default=100.0)
    parser.add_argument("--itl-ms", type=float, default=10.0, help="0: the whole answer at once")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    server = TruthServer(round(args.ttft_ms * 1e6), round(args.itl_ms * 1e6))
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write)
    signal.signal(signal.SIGTERM, lambda *_: None)
    print(server.port, flush=True)
    # Standard input is the lifeline if it is no terminal: its end ends the server, like SIGTERM.
    lifeline = select.epoll()
    lifeline.register(wake_read, select.EPOLLIN)
    if not sys.stdin.isatty():
        lifeline.register(sys.stdin.fileno(), select.EPOLLIN)
    server.serve(lifeline.fileno())
    with open(args.out, "w", encoding="utf-8") as out:
        for answer in server.answers:
            row = {"id": answer.request_id, "first_byte_ns": answer.first_byte_ns}
            row |= {"last_byte_ns": answer.last_byte_ns, "writes_ns": answer.writes_ns}
            out.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
