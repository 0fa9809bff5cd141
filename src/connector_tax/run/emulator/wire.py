"""HTTP in and out of the embedded engine: requests parsed by httptools, answers in vLLM's wire form."""

import asyncio
import json
from collections.abc import Callable
from typing import Any, Protocol, cast

import httptools


class Handler(Protocol):
    """What the server does with one complete request."""

    def __call__(self, exchange: "Exchange", method: str, path: str, body: bytes) -> None: ...


class Exchange(asyncio.Protocol):
    """One client connection; one request at a time, kept alive in between."""

    def __init__(self, handler: Handler, on_lost: Callable[["Exchange"], None]) -> None:
        self._handler = handler
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._body: list[bytes] = []
        self.request_id: int | None = None
        self.authorization = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._on_lost(self)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.reset()

    def on_message_begin(self) -> None:
        self._url = b""
        self._body = []
        self.authorization = b""

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"authorization":
            self.authorization = value

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        method = self._parser.get_method().decode()
        self._handler(self, method, self._url.decode(), b"".join(self._body))

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def reset(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def answer_json(self, value: Any, status: str = "200 OK") -> None:
        self.answer(json.dumps(value).encode(), "application/json", status)

    def answer(self, body: bytes, content_type: str, status: str = "200 OK") -> None:
        head = f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
        self.write(head.encode() + body)

    def answer_error(self, status: str, message: str) -> None:
        """An error in the form in which vLLM sends it."""
        code = int(status.split()[0])
        self.answer_json({"error": {"message": message, "type": "BadRequestError", "code": code}}, status)


STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
)
STREAM_TAIL = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(payload: bytes) -> bytes:
    return b"data: " + payload + b"\n\n"
