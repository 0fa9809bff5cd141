"""The server's end of hostile exchanges: raw sockets on the test's own loop, the bytes that are said over them, and rows of a table."""

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

TOKEN = b'data: {"choices":[{"index":0,"text":"x"}]}\n\n'
DONE = b"data: [DONE]\n\n"
EVENTS = b"Content-Type: text/event-stream\r\n"
HEAD = b"HTTP/1.1 200 OK\r\n" + EVENTS
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
WHOLE = b'{"choices":[{"text":"xx"}],"usage":{"prompt_tokens":8,"completion_tokens":2}}'


def data(payload: bytes) -> bytes:
    return b"data: " + payload + b"\n\n"


def usage(counts: bytes = b'{"prompt_tokens":8,"completion_tokens":2}') -> bytes:
    return data(b'{"choices":[],"usage":' + counts + b"}")


STREAM = TOKEN + TOKEN + usage() + DONE


def chunk(body: bytes, extension: bytes = b"") -> bytes:
    return b"%x%b\r\n%b\r\n" % (len(body), extension, body)


def chunked(
    *bodies: bytes, extension: bytes = b"", head: bytes = CHUNKED, end: bytes = b"0\r\n\r\n"
) -> bytes:
    return head + b"".join(chunk(body, extension) for body in bodies) + end


def sized(body: bytes, head: bytes = HEAD, length: int | None = None) -> bytes:
    return head + b"Content-Length: %d\r\n\r\n" % (len(body) if length is None else length) + body


def status(line: bytes, body: bytes = b"no") -> bytes:
    return sized(body, b"HTTP/1.1 " + line + b"\r\n")


WELL = chunked(TOKEN, TOKEN, usage(), DONE)


class Over(Exception):
    """Nothing more is said or heard on this connection."""


class Peer:
    """One connection; whatever the client does to it ends the script with ``Over`` or an ``OSError``."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._loop = asyncio.get_running_loop()
        self._sock = sock
        self._read = b""

    async def hear(self) -> bytes:
        heard = await self._loop.sock_recv(self._sock, 1 << 20)
        if not heard:
            raise Over
        return heard

    async def head(self) -> bytes:
        while b"\r\n\r\n" not in self._read:
            self._read += await self.hear()
        head, _, self._read = self._read.partition(b"\r\n\r\n")
        return head

    async def request(self) -> None:
        await self.body_of(await self.head())

    async def body_of(self, head: bytes) -> None:
        length = int(head.rpartition(b"Content-Length: ")[2])
        while len(self._read) < length:
            self._read += await self.hear()
        self._read = self._read[length:]

    async def say(self, *pieces: bytes) -> None:
        """Each piece is a read of its own at the other end: between two of them the loop looks at its sockets."""
        for piece in pieces:
            await self._loop.sock_sendall(self._sock, piece)
            await asyncio.sleep(0)

    async def say_without_end(self, piece: bytes) -> None:
        while True:
            await self.say(piece)

    async def gone(self) -> None:
        """Until the client has closed the connection."""
        while True:
            await self.hear()

    def half_close(self) -> None:
        self._sock.shutdown(socket.SHUT_WR)

    def shut(self) -> None:
        """Neither sends nor takes anything any more, as a closed socket; what comes is refused."""
        self._sock.shutdown(socket.SHUT_RDWR)

    def reset(self) -> None:
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self) -> None:
        self._sock.close()


Script = Callable[[Peer], Awaitable[None]]


async def well(peer: Peer) -> None:
    """Answers whatever it is asked."""
    while True:
        await peer.request()
        await peer.say(WELL)


async def finish(peer: Peer, then: str) -> None:
    """The end of a connection: ``keep``, ``close``, ``reset``, ``half`` a close, or ``stall`` until the client goes."""
    if then == "keep":
        return
    if then in ("close", "reset"):
        await asyncio.sleep(0)
        peer.reset() if then == "reset" else peer.close()
        raise Over
    if then == "half":
        peer.half_close()
    await peer.gone()


def saying(*pieces: bytes, then: str = "keep") -> Script:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(*pieces)
        await finish(peer, then)

    return script


def bytewise(answer: bytes, size: int = 1) -> Iterable[bytes]:
    return (answer[k : k + size] for k in range(0, len(answer), size))


class HostileServer:
    """Each connection does what ``script`` does.

    Attributes:
        open: connections whose script is not over.
    """

    def __init__(self, script: Script) -> None:
        self._script = script
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=256)
        self._listening.setblocking(False)
        self.port: int = self._listening.getsockname()[1]
        self._tasks: set[asyncio.Task[None]] = set()
        self._accepting = asyncio.get_running_loop().create_task(self._accept())
        self.open = 0

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            sock, _ = await loop.sock_accept(self._listening)
            task = loop.create_task(self._serve(sock))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _serve(self, sock: socket.socket) -> None:
        self.open += 1
        peer = Peer(sock)
        try:
            await self._script(peer)
        except (Over, OSError):
            pass
        finally:
            peer.close()
            self.open -= 1

    async def close(self) -> None:
        for task in (self._accepting, *self._tasks):
            task.cancel()
        await asyncio.gather(self._accepting, *self._tasks, return_exceptions=True)
        self._listening.close()


PATIENCE_S = 0.1
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Behaviour:
    """One way to answer a request. One that is ``cheap`` ends at once, however patient the client is: it can be repeated and mixed.

    Attributes:
        allowed: statuses with which the request may end.
        timeout_s: the client's patience, where the behaviour never ends by itself.
        request_bytes: of the request's body.
        stream, collect_ids: as the client asks.
    """

    script: Script
    allowed: frozenset[str]
    cheap: bool = True
    timeout_s: float | None = None
    request_bytes: int = 64
    stream: bool = True
    collect_ids: bool = False


Row = tuple[str, Behaviour]


def row(name: str, script: Script, allowed: str, **more: object) -> Row:
    return name, Behaviour(script, frozenset(allowed.split("|")), **more)  # type: ignore[arg-type]


def says(name: str, allowed: str, *pieces: bytes, then: str = "keep", **more: object) -> Row:
    return row(name, saying(*pieces, then=then), allowed, **more)


def stalls(name: str, *pieces: bytes) -> Row:
    return says(name, "timeout", *pieces, then="stall", cheap=False, timeout_s=PATIENCE_S)
