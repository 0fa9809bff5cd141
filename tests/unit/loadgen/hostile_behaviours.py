"""What servers do to their clients: name -> script -> how the request may end."""

import asyncio
import gzip
from collections.abc import Iterable, Iterator

import hostile_streams
from hostile_wire import (
    CHUNKED,
    DONE,
    EVENTS,
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
    finish,
    row,
    says,
    sized,
    stalls,
    status,
    streams,
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


def lengths() -> Iterator[Row]:
    def stated(value: bytes, stream: bytes = STREAM) -> bytes:
        return HEAD + b"Content-Length: " + value + b"\r\n\r\n" + stream

    yield says("a length too long", "ok", sized(STREAM, length=999), then="stall")
    yield says("a length too long, no [DONE]", "truncated", sized(TOKEN, length=999), then="close")
    yield says("a length too short", "truncated", sized(STREAM, length=len(TOKEN) + 5))
    yield streams("a stream of no bytes", "truncated", b"")
    yield says("a length that is negative", "malformed", stated(b"-5"))
    yield says("a length that is huge", "malformed", stated(b"1" + 30 * b"0"))
    yield says("two lengths", "malformed", stated(b"5\r\nContent-Length: 6"))
    yield says(
        "a length and chunks",
        "malformed|ok",
        stated(b"5\r\nTransfer-Encoding: chunked", WELL[len(CHUNKED) :]),
    )
    yield says("no length, close", "ok", HEAD + b"\r\n" + STREAM, then="close")
    yield says("no length, stays open", "ok", HEAD + b"\r\n" + STREAM, then="stall")
    yield says("no length, reset before [DONE]", "truncated", HEAD + b"\r\n" + TOKEN, then="reset")


def chunks() -> Iterator[Row]:
    parts = (TOKEN, TOKEN, usage(), DONE)
    yield says("chunk extensions", "ok", chunked(*parts, extension=b';a=b;c="d"', end=b"0;x\r\n\r\n"))
    for size in (18 * b"F", b"zz"):
        yield says(f"a chunk size of {size!r}", "malformed", CHUNKED + size + b"\r\n" + STREAM)
    yield stalls("a chunk of 2**63 - 1 bytes", CHUNKED + b"7fffffffffffffff\r\n" + TOKEN)
    yield says("a chunk longer than its size", "malformed", CHUNKED + b"5\r\n" + STREAM + b"\r\n0\r\n\r\n")
    yield says("chunks with LF alone", "malformed|ok", CHUNKED + WELL[len(CHUNKED) :].replace(b"\r\n", b"\n"))
    yield says("a trailer that names another type", "ok", WELL[:-2] + b"Content-Type: text/html\r\n\r\n")
    yield says("a trailer without an end, stall", "ok", WELL[:-2] + b"X-A: " + 9999 * b"a", then="stall")
    yield says("a chunk for each byte", "ok", chunked(*bytewise(STREAM)))
    # By the book its line is a field of another name.
    yield says("an event that looks like a chunk", "ok", chunked(TOKEN + chunk(TOKEN), usage(), DONE))
    once_more = CHUNKED.replace(b"chunked", b"chunked, chunked")
    yield says("chunked, chunked", "malformed|ok", chunked(*parts, head=once_more))
    yield says("identity, close", "ok", HEAD + b"Transfer-Encoding: identity\r\n\r\n" + STREAM, then="close")


def closings() -> Iterator[Row]:
    for line in (b"Connection: close", b"CONNECTION: keep-alive, CLOSE"):
        for then in ("stall", "close"):
            yield says(f"{line.decode()}, then {then}", "ok", sized(STREAM, HEAD + line + b"\r\n"), then=then)
    yield says("close while idle", "ok", WELL, then="close")
    yield says("reset while idle", "ok", WELL, then="reset")


def protocols() -> Iterator[Row]:
    old = HEAD.replace(b"1.1", b"1.0")
    yield says("HTTP/1.0, close", "ok", old + b"\r\n" + STREAM, then="close")
    yield says("HTTP/1.0, no [DONE]", "truncated", old + b"\r\n" + TOKEN, then="close")
    yield says("HTTP/1.0, keep-alive", "ok", sized(STREAM, old + b"Connection: keep-alive\r\n"))
    yield says("HTTP/0.9", "malformed", STREAM, then="close")
    yield says("HTTP/2.0 in the status line", "malformed|ok", WELL.replace(b"HTTP/1.1", b"HTTP/2.0"))
    yield says("HTTP/9.9", "malformed", WELL.replace(b"HTTP/1.1", b"HTTP/9.9"))
    nonsense = {
        "HTTP/2 settings": b"\x00\x00\x12\x04" + 14 * b"\x00" + b"\x80\x00\x04\x00\x01\x00\x00\x00\x05\x00",
        "a TLS alert": b"\x15\x03\x01\x00\x02\x02\x46",
        "every byte": bytes(range(256)) * 8,
        "a request": b"GET / HTTP/1.1\r\n\r\n",
    }
    for name, nonsense_bytes in nonsense.items():
        yield says(name, "malformed", nonsense_bytes, then="close")


def heads() -> Iterator[Row]:
    def with_line(line: bytes) -> bytes:
        return sized(STREAM, HEAD + line + b"\r\n")

    yield says("heads with LF alone", "malformed|ok", WELL.replace(b"\r\n", b"\n", 3))
    yield says("blank lines before the head", "ok", b"\r\n\r\n" + WELL)
    yield says("no reason", "ok", WELL.replace(b"200 OK", b"200"))
    yield says("status 099", "malformed|http_error", status(b"099 X"))
    yield says("status 2e2", "malformed", status(b"2e2 X"))
    yield says("a folded header", "malformed|ok", with_line(b"X-A: a\r\n  b"))
    yield says("a header without a colon", "malformed", with_line(b"junk"))
    yield says("latin-1 in a header", "ok", with_line(b"X-A: \xe9\xff"))
    upper = b"HTTP/1.1 200 OK\r\ncontent-TYPE:TEXT/EVENT-STREAM; CHARSET=UTF-8\r\n"
    yield says("a type in capitals", "ok", sized(STREAM, upper))
    yield says("two types", "malformed|ok", with_line(b"Content-Type: application/json"))
    yield says("no type", "malformed", sized(STREAM, b"HTTP/1.1 200 OK\r\n"))
    yield says(
        "a head of 1 MB", "ok", with_line(b"X-A: " + b"\r\nX-A: ".join([45 * b"a"] * 20_000)), cheap=False
    )


def interim() -> Iterator[Row]:
    go_on = b"HTTP/1.1 100 Continue\r\n\r\n"
    hint = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    yield says("100 in a read of its own", "ok", go_on, WELL)
    yield says("a thousand times 103", "ok", 1000 * hint + WELL)
    yield says("100 that closes", "malformed|ok", b"HTTP/1.1 100 C\r\nConnection: close\r\n\r\n" + WELL)
    yield says("100 with a body", "malformed", b"HTTP/1.1 100 C\r\nContent-Length: 5\r\n\r\nhello" + WELL)
    yield says("100, then close", "truncated", go_on, then="close")
    yield stalls("100, then stall", go_on)
    upgrade = b"HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"
    yield says("101", "http_error", upgrade + b"xyz", then="stall")


def statuses() -> Iterator[Row]:
    for code in (201, 206, 301, 404, 429, 599):
        yield says(f"HTTP {code}", "http_error", status(b"%d X\r\nLocation: /elsewhere" % code))
    yield says("HTTP 204", "http_error", b"HTTP/1.1 204 X\r\n\r\n")
    yield says("HTTP 304 with a body", "http_error", status(b"304 X", b"hello"))
    busy = b"HTTP/1.1 503 X\r\nContent-Length: 100\r\n\r\nbusy"
    yield says("503 until close", "http_error", b"HTTP/1.1 503 X\r\n\r\nbusy", then="close")
    yield says("503, reset in its body", "http_error", busy, then="reset")
    yield stalls("503, stall in its body", busy)
    yield says(
        "503 longer than its length", "http_error", b"HTTP/1.1 503 X\r\nContent-Length: 2\r\n\r\nbusy busy"
    )
    yield says("500 as an event stream", "http_error", sized(STREAM, b"HTTP/1.1 500 X\r\n" + EVENTS))
    yield says("500 of 10 MB", "http_error", status(b"500 X", bytes(10**7)), then="stall", cheap=False)
    yield says("a page", "malformed", sized(b"<html>", b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"))
    json = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
    yield says("an answer in one piece", "malformed", sized(WHOLE, json))
    yield says("a page until close", "malformed", b"HTTP/1.1 200 OK\r\n\r\n<html>", then="close")


def compressed() -> Iterator[Row]:
    z = gzip.compress(STREAM)
    yield says("gzip", "malformed", sized(z, HEAD + b"Content-Encoding: gzip\r\n"))
    yield says(
        "gzip by transfer encoding",
        "malformed",
        chunked(z, head=HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n"),
    )
    yield says("gzip until close", "malformed", HEAD + b"Content-Encoding: br\r\n\r\n" + z, then="close")
    until = HEAD + b"Transfer-Encoding: chunked, gzip\r\n\r\n"
    yield says("chunked, gzip until close", "malformed|truncated", until + z, then="close")
    yield says("gzip that is none", "malformed|ok", sized(STREAM, HEAD + b"Content-Encoding: gzip\r\n"))
    yield says("identity that says so", "ok", sized(STREAM, HEAD + b"Content-Encoding: identity\r\n"))


def more_than_asked() -> Iterator[Row]:
    yield says("two answers at once", "ok", WELL + WELL)
    yield says("garbage behind the answer", "ok", WELL + b"garbage")
    yield says("a 408 while idle", "ok", WELL, status(b"408 X"), then="close")
    yield says("a blank line behind the answer", "ok", WELL + b"\r\n")

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
    "lengths": lengths(),
    "chunks and trailers": chunks(),
    "Connection: close": closings(),
    "other protocols": protocols(),
    "heads": heads(),
    "interim answers": interim(),
    "statuses": statuses(),
    "compressed": compressed(),
    "more than was asked for": more_than_asked(),
    "early answers": early(),
    "without end": without_end(),
    **hostile_streams.GROUPS,
}
ROWS = [(group, name, behaviour) for group, rows in GROUPS.items() for name, behaviour in rows]
BEHAVIOURS: dict[str, Behaviour] = {name: behaviour for _, name, behaviour in ROWS}
assert len(BEHAVIOURS) == len(ROWS), "two behaviours of one name"
