"""What servers do to their clients over sockets: name -> script -> how the request may end.

What stands in an answer is held by tests/golden/data/answers.json, cut at every byte; of it a few rows are here, for what comes after them
on the same connection and for memory.
"""

import asyncio
import gzip
from collections.abc import Iterable, Iterator

from hostile_wire import (
    CHUNKED,
    DONE,
    HEAD,
    MIB,
    PATIENCE_S,
    STREAM,
    TOKEN,
    WELL,
    WHOLE,
    Behaviour,
    Over,
    Peer,
    Row,
    Script,
    bytewise,
    chunk,
    chunked,
    data,
    finish,
    row,
    says,
    sized,
    stalls,
    status,
    usage,
)


def slow_bytes() -> Iterator[Row]:
    yield says("byte by byte, CR", "ok", *bytewise(sized(STREAM.replace(b"\n", b"\r"))))
    yield says("byte by byte, in chunks", "ok", *bytewise(WELL))
    parts = STREAM.replace(b"\n", b"\r\n").split(b"\n")
    cut = [part + b"\n" for part in parts[:-1]]
    yield says("chunks cut between CR and LF", "ok", chunked(*(c for p in cut for c in (p[:-1], p[-1:]))))
    yield says("the last chunk late", "ok", WELL[:-5], b"0\r\n", b"\r\n")


def cuts() -> Iterator[Row]:
    token, after = len(chunk(TOKEN)), len(CHUNKED)
    places = {
        "before an answer": 0,
        "in the status line": 10,
        "after the head": after,
        "after the first token": after + token,
        "in [DONE]": len(WELL) - 5 - 8,
    }
    for place, n in places.items():
        begun = (WELL[:n],) if n else ()
        for then in ("close", "reset", "half"):
            yield says(f"{then} {place}", "truncated", *begun, then=then)
        yield stalls(f"stall {place}", *begun)
    for then in ("close", "reset", "half", "stall"):
        yield says(f"{then} after [DONE], before the last chunk", "ok", WELL[:-5], then=then)
        yield says(f"{then} in the last chunk", "ok", WELL[:-3], then=then)

    async def on_accept(peer: Peer, then: str) -> None:
        await finish(peer, then)

    # A reset may come before the client's connect has returned.
    yield row("close on accept", lambda peer: on_accept(peer, "close"), "truncated|connect_error")
    yield row("reset on accept", lambda peer: on_accept(peer, "reset"), "truncated|connect_error")

    async def after_a_part(peer: Peer) -> None:
        await peer.hear()
        await finish(peer, "reset")

    yield row("reset in the request", after_a_part, "truncated", request_bytes=8 * MIB)

    async def unread(peer: Peer) -> None:
        await asyncio.sleep(2 * PATIENCE_S)
        raise Over

    yield row(
        "a request never read", unread, "timeout", cheap=False, timeout_s=PATIENCE_S, request_bytes=8 * MIB
    )


def messages() -> Iterator[Row]:
    yield says("a length too long", "ok", sized(STREAM, length=999), then="stall")
    yield says("no length, close", "ok", HEAD + b"\r\n" + STREAM, then="close")
    yield says("no length, stays open", "ok", HEAD + b"\r\n" + STREAM, then="stall")
    yield stalls("a chunk of 2**63 - 1 bytes", CHUNKED + b"7fffffffffffffff\r\n" + TOKEN)
    yield says("a chunk longer than its size", "malformed", CHUNKED + b"5\r\n" + STREAM + b"\r\n0\r\n\r\n")
    yield says("a trailer without an end, stall", "ok", WELL[:-2] + b"X-A: " + 9999 * b"a", then="stall")
    yield says("HTTP/1.0", "ok", HEAD.replace(b"1.1", b"1.0") + b"\r\n" + STREAM, then="close")
    yield says("every byte", "malformed", bytes(range(256)) * 8, then="close")
    line = b"X-A: " + b"\r\nX-A: ".join([45 * b"a"] * 20_000) + b"\r\n"
    yield says("a head of 1 MB", "ok", sized(STREAM, HEAD + line), cheap=False)
    z = gzip.compress(STREAM)
    yield says("gzip", "malformed", sized(z, HEAD + b"Content-Encoding: gzip\r\n"))


def closings() -> Iterator[Row]:
    for line in (b"Connection: close", b"CONNECTION: keep-alive, CLOSE"):
        for then in ("stall", "close"):
            yield says(f"{line.decode()}, then {then}", "ok", sized(STREAM, HEAD + line + b"\r\n"), then=then)
    yield says("close while idle", "ok", WELL, then="close")
    yield says("reset while idle", "ok", WELL, then="reset")


def statuses() -> Iterator[Row]:
    go_on = b"HTTP/1.1 100 Continue\r\n\r\n"
    yield says("100 in a read of its own", "ok", go_on, WELL)
    yield says("a thousand times 103", "ok", 1000 * b"HTTP/1.1 103 E\r\nLink: </a>\r\n\r\n" + WELL)
    yield stalls("100, then stall", go_on)
    upgrade = b"HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"
    yield says("101", "http_error", upgrade + b"xyz", then="stall")
    yield says("HTTP 404", "http_error", status(b"404 X"))
    busy = b"HTTP/1.1 503 X\r\nContent-Length: 100\r\n\r\nbusy"
    yield says("503, reset in its body", "http_error", busy, then="reset")
    yield stalls("503, stall in its body", busy)
    long = b"HTTP/1.1 503 X\r\nContent-Length: 2\r\n\r\nbusy busy"
    yield says("503 longer than its length", "http_error", long)
    yield says("500 of 10 MB", "http_error", status(b"500 X", bytes(10**7)), then="stall", cheap=False)
    json = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
    whole: dict[str, object] = {"stream": False}
    yield says("whole: byte by byte", "ok", *bytewise(sized(WHOLE, json)), **whole)
    yield says("whole: an error", "stream_error", sized(b'{"error":{"message":"m"}}', json), **whole)
    yield says("whole: until close", "ok", json + b"\r\n" + WHOLE, then="close", **whole)
    yield says("whole: reset", "truncated", json + b"\r\n" + WHOLE[:40], then="reset", **whole)


def streams() -> Iterator[Row]:
    end = chunk(usage() + DONE) + b"0\r\n\r\n"
    # In a frame of its own, where no parser of HTTP catches what the decoder raises.
    for event in (b'{"choices":[{"text":"\xff\xfe"}]}', 100_000 * b"[", b'{"choices":[5]}'):
        frames = (CHUNKED + chunk(TOKEN), chunk(data(event)), end)
        yield says(f"{event[:20]!r} in a frame", "malformed", *frames)
    error = chunk(data(b'{"error":{"message":"engine died"}}'))
    yield says("an error in a frame", "stream_error", CHUNKED + chunk(TOKEN), error, then="stall")
    for ids, allowed in ((b"[7,8]", "ok"), (b"[null,null]", "malformed"), (b"5", "malformed")):
        event = chunk(data(b'{"choices":[{"index":0,"text":"x","token_ids":' + ids + b"}]}"))
        yield says(f"token ids: {ids!r}", allowed, CHUNKED + event, end, collect_ids=True)
    yield says("tokens after [DONE], later", "ok", CHUNKED + chunk(STREAM), chunk(TOKEN), b"0\r\n\r\n")
    yield says("2 MB of comment lines", "ok", sized(300_000 * b": ping\n" + STREAM), cheap=False)
    for mib, allowed in ((8, "ok"), (17, "malformed")):
        token = data(b'{"choices":[{"text":"' + mib * MIB * b"y" + b'"}]}')
        yield says(f"a token of {mib} MB", allowed, sized(TOKEN + token + usage() + DONE), cheap=False)
    yield says(
        "an error of 4 MB", "stream_error", sized(data(b'{"error":"' + 4 * MIB * b"e" + b'"}')), cheap=False
    )


def more_than_asked() -> Iterator[Row]:
    yield says("two answers at once", "ok", WELL + WELL)
    yield says("garbage behind the answer", "ok", WELL + b"garbage")
    yield says("a 408 while idle", "ok", WELL, status(b"408 X"), then="close")

    async def unasked(peer: Peer) -> None:
        await peer.say(WELL)
        await peer.request()

    yield row("an answer on accept", unasked, "ok|malformed|truncated")

    async def too_slow(peer: Peer) -> None:
        await peer.say(status(b"408 X\r\nConnection: close"))
        peer.close()
        raise Over

    yield row("a 408 on accept", too_slow, "http_error|truncated")


def early() -> Iterator[Row]:
    """Answers before the request is read. What a client is still writing must not stand before its next request."""

    def answers(answer: bytes, then: str) -> Script:
        async def script(peer: Peer) -> None:
            head = await peer.head()
            await peer.say(answer)
            await asyncio.sleep(0.01)
            if then == "keep":
                await peer.body_of(head)
            await finish(peer, then)

        return script

    closing = status(b"413 X\r\nConnection: close")
    for mib in (1, 8):
        more: dict[str, object] = {"request_bytes": mib * MIB, "cheap": False}
        # What the close of a socket with something unread in it does to the answer is the kernel's to say.
        yield row(
            f"413 and close, {mib} MiB unread", answers(closing, "close"), "http_error|truncated", **more
        )
        yield row(f"413, {mib} MiB not read", answers(status(b"413 X"), "stall"), "http_error", **more)
        # What fits into the kernel's buffers is written, and the server reads on; of what does not nobody knows.
        then = "keep" if mib == 1 else "stall"
        yield row(f"503, {mib} MiB read late", answers(status(b"503 X"), then), "http_error", **more)
        yield row(f"200 before {mib} MiB are read", answers(WELL, then), "ok", **more)
    yield row("401 before the body is read", answers(status(b"401 X"), "keep"), "http_error", cheap=False)


def without_end() -> Iterator[Row]:
    a, until = 65536 * b"a", HEAD + b"\r\n"
    header = 4000 * b"X-A: aaaaaaaa\r\n"
    floods = {
        "a header's value": ("malformed", HEAD + b"X-A: ", a),
        "headers": ("malformed", HEAD, header),
        "a reason": ("malformed", b"HTTP/1.1 200 ", a),
        "interim answers": ("malformed", b"", 3000 * b"HTTP/1.1 100 C\r\n\r\n"),
        "an event": ("malformed", until + TOKEN + b'data: {"a":"', a),
        "comments": ("malformed", until + TOKEN, 8000 * b": ping\n\n"),
        "tokens": ("malformed", until, 60 * TOKEN.replace(b"x", 1000 * b"x")),
        "one-byte chunks": ("malformed", CHUNKED + chunk(TOKEN), 10_000 * b"1\r\na\r\n"),
        "trailers": ("ok", WELL[:-2], header),
        "trailers without [DONE]": ("malformed", chunked(TOKEN, usage(), end=b"0\r\n"), header),
        "an error's body": ("http_error", b"HTTP/1.1 500 X\r\n\r\n", a),
        "a page": ("malformed", b"HTTP/1.1 200 OK\r\n\r\n", a),
    }

    def flood(begin: bytes, piece: bytes) -> Script:
        async def script(peer: Peer) -> None:
            await peer.request()
            await peer.say(begin)
            # More than a socket holds: the client always finds another long read.
            await peer.say_without_end(piece * (8 * MIB // len(piece)))

        return script

    for name, (allowed, begin, piece) in floods.items():
        yield row(f"{name} without end", flood(begin, piece), allowed, cheap=False)


GROUPS: dict[str, Iterable[Row]] = {
    "slow bytes": slow_bytes(),
    "closes, resets and stalls at every boundary": cuts(),
    "messages": messages(),
    "Connection: close": closings(),
    "statuses": statuses(),
    "streams": streams(),
    "more than was asked for": more_than_asked(),
    "early answers": early(),
    "without end": without_end(),
}
ROWS = [(group, name, behaviour) for group, rows in GROUPS.items() for name, behaviour in rows]
BEHAVIOURS: dict[str, Behaviour] = {name: behaviour for _, name, behaviour in ROWS}
assert len(BEHAVIOURS) == len(ROWS), "two behaviours of one name"
