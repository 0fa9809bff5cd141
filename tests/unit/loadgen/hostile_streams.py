"""What servers write into their streams, and in place of one: name -> script -> how the request may end."""

import gzip
from collections.abc import Iterator

from hostile_wire import (
    CHUNKED,
    DONE,
    MIB,
    STREAM,
    TOKEN,
    WHOLE,
    Row,
    bytewise,
    chunk,
    data,
    says,
    sized,
    streams,
    usage,
)


def events() -> Iterator[Row]:
    rest = TOKEN + usage() + DONE
    yield streams("a byte order mark", "ok", b"\xef\xbb\xbf" + STREAM)
    yield streams("comments", "ok", b": hi\n\n: a\n" + TOKEN + b":\n\n" + rest)
    yield streams("2 MB of comment lines", "ok", 300_000 * b": ping\n" + STREAM, cheap=False)
    yield streams("JSON over several lines", "ok", b'data: {"choices":\ndata: [{"text":"x"}]}\n\n' + rest)
    yield streams("other fields", "ok", b"event: m\nid: 1\nretry: 5\n" + TOKEN + b"id: 2\n" + rest)
    yield streams("data with many blanks", "ok", STREAM.replace(b"data: ", b"data:    "))
    yield streams("blanks around every mark", "ok", STREAM.replace(b'"choices":[{', b'"choices" : [ {'))
    yield streams("an event that is no JSON", "malformed", TOKEN + data(b"{broken") + DONE)
    yield streams(
        "a token that is no JSON",
        "malformed",
        TOKEN + data(b'{"choices":[{"text":"a" b}]}') + usage() + DONE,
    )
    yield streams("no UTF-8, first", "malformed", data(b'{"choices":[{"text":"\xff\xfe"}]}') + rest)
    # In a frame of its own, where no parser of HTTP catches what the decoder raises.
    for event in (b'{"choices":[{"text":"\xff\xfe"}]}', 100_000 * b"[", b'{"choices":[5]}'):
        frames = (CHUNKED + chunk(TOKEN), chunk(data(event)), chunk(usage() + DONE) + b"0\r\n\r\n")
        yield says(f"{event[:20]!r} in a frame", "malformed", *frames)
    for name, heartbeat in {
        "nothing": b"data:\n\n",
        "two empty lines of data": b"data:\ndata:\n\n",
        "data without a colon": b"data\n\n",
        "an empty object": data(b"{}"),
        "choices that are null": data(b'{"choices":null}'),
        "no error": data(b'{"error":null}'),
        "an event of another name": b"event: ping\n" + data(b"{"),
        "half a surrogate pair": data(b'{"type":"\\ud83d"}'),
        "NaN": data(b'{"load":NaN}'),
    }.items():
        body = heartbeat + TOKEN + heartbeat + TOKEN + heartbeat + usage() + heartbeat + DONE
        yield streams(f"a heartbeat: {name}", "ok", body)
    yield streams("a list", "malformed", data(b"[1,2]") + rest)
    yield streams(
        "a token of 8 MB",
        "ok",
        TOKEN + data(b'{"choices":[{"text":"' + 8 * MIB * b"y" + b'"}]}') + usage() + DONE,
        cheap=False,
    )
    yield streams(
        "a token of 17 MB",
        "malformed",
        TOKEN + data(b'{"choices":[{"text":"' + 17 * MIB * b"y" + b'"}]}'),
        cheap=False,
    )


def ends() -> Iterator[Row]:
    yield streams("[DONE] without a blank line", "ok", STREAM[:-1])
    yield streams("[done]", "malformed", STREAM.replace(b"DONE", b"done"))
    yield streams("no [DONE]", "truncated", TOKEN + TOKEN + usage())
    yield streams("[DONE] first", "malformed", DONE + TOKEN + TOKEN + usage())
    yield streams("[DONE] twice", "ok", STREAM + DONE)
    yield streams("tokens after [DONE], at once", "ok", STREAM + 3 * TOKEN)
    yield streams("[DONE] of an event with a name", "ok", STREAM.replace(DONE, b"event: done\n" + DONE))
    yield says("tokens after [DONE], later", "ok", CHUNKED + chunk(STREAM), chunk(TOKEN), b"0\r\n\r\n")
    yield streams("[DONE] alone", "malformed", DONE)


def usages() -> Iterator[Row]:
    yield streams("usage and no token", "malformed", usage() + DONE)
    yield streams("no usage", "malformed", TOKEN + TOKEN + DONE)
    oddities = {
        "null": b"null",
        "a list": b"[1]",
        "empty": b"{}",
        "negative": b'{"prompt_tokens":-8,"completion_tokens":2}',
        "fractions": b'{"prompt_tokens":8.0,"completion_tokens":2.0}',
        "truths": b'{"prompt_tokens":true,"completion_tokens":true}',
        "NaN": b'{"prompt_tokens":NaN,"completion_tokens":2}',
        "huge": b'{"prompt_tokens":8,"completion_tokens":18446744073709551616}',
        "one count": b'{"prompt_tokens":8}',
    }
    for name, counts in oddities.items():
        yield streams(f"usage: {name}", "malformed", TOKEN + TOKEN + usage(counts) + DONE)
    yield streams(
        "usage of 4 MB", "malformed", TOKEN + usage(b'{"a":"' + 4 * MIB * b"z" + b'"}') + DONE, cheap=False
    )
    within = TOKEN[:-3] + b',"usage":{"prompt_tokens":8,"completion_tokens":%d}}\n\n'
    yield streams("usage in every token", "ok", within % 1 + within % 2 + DONE)
    for name, counts in {**oddities, "prices": b'{"cost":0.01}'}.items():
        if name != "NaN":
            yield streams(f"usage, then {name}", "ok", TOKEN + TOKEN + usage() + usage(counts) + DONE)
            yield streams(f"{name}, then usage", "ok", usage(counts) + TOKEN + TOKEN + usage() + DONE)
    yield streams(
        "no tokens, as usage says", "ok", usage(b'{"prompt_tokens":8,"completion_tokens":0}') + DONE
    )


def broken_off() -> Iterator[Row]:
    error = b'"error":{"message":"engine died"}'
    beside = data(b"{" + error + b',"choices":[{"index":0,"text":"","finish_reason":"error"}]}')
    for name, before in {"first": b"", "later": TOKEN}.items():
        yield streams(f"an error, {name}", "stream_error", before + data(b"{" + error + b"}") + DONE)
        yield streams(f"an error beside choices, {name}", "stream_error", before + beside + usage() + DONE)
        for reason in (b'"abort"', b'"who knows"', b"7"):
            finished = data(b'{"choices":[{"index":0,"text":"","finish_reason":' + reason + b"}]}")
            yield streams(
                f"finished by {reason.decode()}, {name}",
                "stream_error",
                before + TOKEN + finished + usage() + DONE,
            )
    for reason in (b'""', b'"stop"', b'"length"', b'"tool_calls"', b'"content_filter"'):
        finished = data(b'{"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":' + reason + b"}]}")
        yield streams(f"finished by {reason.decode()}", "ok", TOKEN + finished + usage() + DONE)
    yield says(
        "an error in a frame of its own",
        "stream_error",
        CHUNKED + chunk(TOKEN),
        chunk(TOKEN),
        chunk(beside),
        then="stall",
    )
    yield streams("an error that is text", "stream_error", TOKEN + data(b'{"error":"died"}') + DONE)
    yield streams(
        "an object of errors", "stream_error", TOKEN + data(b'{"object":"error","message":"m"}') + DONE
    )
    yield streams("event: error", "stream_error", TOKEN + b"event: error\ndata: engine died\n\n" + DONE)
    yield streams(
        "an error of 4 MB", "stream_error", data(b'{"error":"' + 4 * MIB * b"e" + b'"}'), cheap=False
    )


def token_ids() -> Iterator[Row]:
    oddities = {
        "a number": b"5",
        "text": b'"ab"',
        "nulls": b"[null,null]",
        "lists": b"[[1],[2]]",
        "fractions": b"[1.5,2.5]",
        "huge": b"[1e30,2]",
        "beyond 63 bits": b"[18446744073709551615,1]",
        "negative": b"[-1,-2]",
        "truths": b"[true,false]",
        "too many": b"[1,2,3]",
        "too few": b"[1]",
        "null": b"null",
    }

    def event(ids: bytes) -> bytes:
        return data(b'{"choices":[{"index":0,"text":"x","token_ids":' + ids + b"}]}")

    for name, ids in oddities.items():
        pieces = (CHUNKED + chunk(event(ids)), chunk(usage()) + chunk(DONE) + b"0\r\n\r\n")
        yield says(f"token ids: {name}", "malformed", *pieces, collect_ids=True)
    yield streams("token ids", "ok", event(b"[7,8]") + usage() + DONE, collect_ids=True)


def whole_answers() -> Iterator[Row]:
    json = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
    bodies = {
        "in one piece": ("ok", WHOLE),
        "no JSON": ("malformed", b"{broken"),
        "a list": ("malformed", b"[]"),
        "nothing": ("malformed", b""),
        "no choices": ("malformed", b'{"usage":{"prompt_tokens":8,"completion_tokens":2}}'),
        "no usage": ("malformed", b'{"choices":[{"text":"xx"}]}'),
        "an error": ("stream_error", b'{"error":{"message":"m"}}'),
        "a stream": ("malformed", STREAM),
        "null": ("malformed", b"null"),
        "empty choices": ("malformed", WHOLE.replace(b'{"text":"xx"}', b"")),
    }
    for reason in (b'"stop"', b"null", b'"function_call"'):
        end = b'"finish_reason":' + reason + b"}"
        bodies[f"finished by {reason.decode()}"] = ("ok", WHOLE.replace(b"}", b"," + end, 1))
    for reason in (b'"abort"', b"7"):
        end = b'"finish_reason":' + reason + b"}"
        bodies[f"finished by {reason.decode()}"] = ("stream_error", WHOLE.replace(b"}", b"," + end, 1))
        chat = WHOLE.replace(b'"text":"xx"}', b'"message":{"role":"assistant","content":"xx"},' + end)
        bodies[f"a chat finished by {reason.decode()}"] = ("stream_error", chat)
    for name, (allowed, body) in bodies.items():
        yield says(f"whole: {name}", allowed, sized(body, json), stream=False)
    yield says("whole: byte by byte", "ok", *bytewise(sized(WHOLE, json)), stream=False)
    yield says("whole: until close", "ok", json + b"\r\n" + WHOLE, then="close", stream=False)
    yield says("whole: a length too long", "ok", sized(WHOLE, json, length=999), then="close", stream=False)
    for then in ("close", "reset"):
        cut = json + b"\r\n" + WHOLE[:40]
        yield says(f"whole: {then}, no length", "truncated", cut, then=then, stream=False)
    yield says(
        "whole: gzip",
        "malformed",
        sized(gzip.compress(WHOLE), json + b"Content-Encoding: gzip\r\n"),
        stream=False,
    )


GROUPS = {
    "events": events(),
    "[DONE]": ends(),
    "usage": usages(),
    "errors in the stream": broken_off(),
    "token ids": token_ids(),
    "whole answers": whole_answers(),
}
