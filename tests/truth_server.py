"""A server whose timing and faults the tests set, one byte script per request; loopback only."""

import asyncio
import json
import ssl
import threading
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

Script = Callable[["Reply", dict[str, Any], int], Any]


class Reply:
    """A script's means to answer one request, whose bytes are ``asked``."""

    def __init__(self, writer: asyncio.StreamWriter, asked: bytes) -> None:
        self.writer = writer
        self.asked = asked

    def head(self, status: str = "200 OK", content_type: str = "text/event-stream") -> None:
        self.raw(
            f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        )

    def raw(self, data: bytes) -> None:
        self.writer.write(data)

    def body(self, data: bytes) -> None:
        self.raw(b"%x\r\n%b\r\n" % (len(data), data))

    def end(self) -> None:
        self.raw(b"0\r\n\r\n")

    def reset(self) -> None:
        self.writer.transport.abort()


def token_event(text: str = "x") -> bytes:
    return b"data: " + json.dumps({"choices": [{"index": 0, "text": text}]}).encode() + b"\n\n"


def usage_event(prompt_tokens: int, completion_tokens: int) -> bytes:
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}
    return b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\n"


MODELS = b'HTTP/1.1 200 OK\r\nContent-Length: 21\r\n\r\n{"data":[{"id":"m"}]}'
DONE = b"data: [DONE]\n\n"


def whole_answer(request: dict[str, Any]) -> bytes:
    n = request["max_tokens"]
    return token_event() * n + usage_event(len(request["prompt"]), n) + DONE


async def answer_well(reply: Reply, request: dict[str, Any], number: int) -> None:
    reply.head()
    reply.body(whole_answer(request))
    reply.end()


@contextmanager
def truth_server(  # type: ignore[no-untyped-def]
    script: Script = answer_well,
    metrics: Callable[[], str] | None = None,
    tls: ssl.SSLContext | None = None,
):
    """Serve ``script(reply, request, number)`` and ``metrics`` on a free port; yields the base URL."""
    loop = asyncio.new_event_loop()
    count = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                if head.startswith(b"GET /metrics") and metrics is not None:
                    body = metrics().encode()
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
                    continue
                if head.startswith(b"GET "):
                    writer.write(MODELS)
                    continue
                length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
                body = await reader.readexactly(length)
                count += 1
                result = script(Reply(writer, head + body), json.loads(body), count)
                if asyncio.iscoroutine(result):
                    await result
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            return
        finally:
            writer.close()

    server = loop.run_until_complete(asyncio.start_server(serve, "127.0.0.1", 0, limit=2**24, ssl=tls))
    port = server.sockets[0].getsockname()[1]
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{port}"
    finally:

        async def close() -> None:
            server.close()
            tasks = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(close(), loop).result(5)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)
        loop.close()
