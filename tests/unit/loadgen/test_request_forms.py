"""How requests are put: chat, answers in one piece, text prompts, further members and headers, time-outs, TLS, a path prefix."""

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
import self_signed
from cell_specs import cell_spec
from truth_server import DONE, Reply, answer_well, truth_server, usage_event, whole_answer

from connector_tax.base.errors import ConfigError
from connector_tax.base.records.target import RequestForm, target_of
from connector_tax.run.loadgen.cell import CellOutcome, measure_cell

pytestmark = pytest.mark.usefixtures("shared_worker")
SHORT = {
    "rate_per_s": 50.0,
    "warmup_s": 0.0,
    "duration_s": 0.0,
    "min_completed": 0,
    "max_cell_s": 20.0,
    "inflight_cap": 64,
    "num_requests": 8,
}


def load(script: Any, form: RequestForm = RequestForm(), **changes: Any) -> CellOutcome:  # noqa: B008 - frozen
    with truth_server(script) as url:
        return measure_cell(cell_spec(**{**SHORT, **changes}, form=form), target_of(url, "m"))


def statuses(outcome: CellOutcome) -> dict[str, int]:
    return {s: sum(r.status == s for r in outcome.requests) for s in {r.status for r in outcome.requests}}


def delta(**content: Any) -> bytes:
    return b"data: " + json.dumps({"choices": [{"index": 0, "delta": content}]}).encode() + b"\n\n"


def test_a_chat_is_asked_with_messages_and_its_role_is_no_token() -> None:
    """The role comes at once, the first token 60 ms later: TTFT is that of the token."""
    asked: list[dict[str, Any]] = []

    async def chat(reply: Reply, request: dict[str, Any], number: int) -> None:
        asked.append(request)
        reply.head()
        reply.body(delta(role="assistant", content=""))
        await asyncio.sleep(0.06)
        for _ in range(request["max_tokens"]):
            reply.body(delta(content="x"))
            await asyncio.sleep(0.001)
        reply.body(usage_event(11, request["max_tokens"]) + DONE)
        reply.end()

    outcome = load(chat, RequestForm(api="chat"))
    assert statuses(outcome) == {"ok": 8}
    assert min((r.t_first_token_ns or 0) - (r.t_send_ns or 0) for r in outcome.requests) >= 60e6
    assert {r.prompt_tokens for r in outcome.requests} == {11}, "as the server counts them"
    message = asked[0]["messages"][0]
    assert asked[0].keys() >= {"model", "messages", "max_tokens"} and "prompt" not in asked[0]
    assert message["role"] == "user" and len(message["content"].split()) == 8
    assert len({json.dumps(a["messages"]) for a in asked}) == 8


async def whole(reply: Reply, request: dict[str, Any], number: int) -> None:
    assert request["stream"] is False and "stream_options" not in request
    usage = {"prompt_tokens": len(request["prompt"]), "completion_tokens": request["max_tokens"]}
    body = json.dumps({"choices": [{"index": 0, "text": "x"}], "usage": usage}).encode()
    reply.head(content_type="application/json")
    reply.body(body[:10])
    await asyncio.sleep(0.02)
    reply.body(body[10:])
    reply.end()


def test_an_answer_in_one_piece_has_an_end_and_no_first_token() -> None:
    outcome = load(whole, RequestForm(stream=False), output_tokens=16)
    assert statuses(outcome) == {"ok": 8}
    assert {r.t_first_token_ns for r in outcome.requests} == {None}
    assert min(r.e2e_ns or 0 for r in outcome.requests) > 20e6
    assert {r.tpot_ns for r in outcome.requests} == {None}
    assert outcome.health.whole_answer_share == 0


def test_an_answer_of_another_length_is_wrong_where_the_length_was_asked_for() -> None:
    """The model may end it where it is allowed to."""
    ignored: list[bool] = []

    async def short(reply: Reply, request: dict[str, Any], number: int) -> None:
        ignored.append("ignore_eos" in request)
        await answer_well(reply, {**request, "max_tokens": 2}, number)

    asked = load(short)
    assert statuses(asked) == {"wrong_length": 8}
    assert "asked for 8 and 4" in (asked.requests[0].error or "")
    assert statuses(load(short, RequestForm(honor_eos=True))) == {"ok": 8}
    assert ignored == [True] * 8 + [False] * 8


def test_text_prompts_are_words_whose_number_follows_from_what_was_measured() -> None:
    """100 tokens at 1.5 a word with 10 of a template: 60 words."""
    asked: list[str] = []

    async def script(reply: Reply, request: dict[str, Any], number: int) -> None:
        asked.append(request["prompt"])
        await answer_well(reply, request, number)

    form = RequestForm(words=True, tokens_per_word=1.5, template_tokens=10)
    assert statuses(load(script, form, input_tokens=100)) == {"ok": 8}
    assert {len(text.split(" ")) for text in asked} == {60}
    assert all(text.isascii() and text == text.strip() for text in asked)


def test_a_request_without_an_end_is_given_up_alone() -> None:
    """The third hangs; those before and after it are not touched, and its connection is not used again."""

    async def script(reply: Reply, request: dict[str, Any], number: int) -> None:
        if number == 3:
            reply.head()
            await asyncio.sleep(30)
        await answer_well(reply, request, number)

    start = time.monotonic()
    outcome = load(script, RequestForm(timeout_s=0.5))
    assert time.monotonic() - start < 15
    assert statuses(outcome) == {"ok": 7, "timeout": 1}
    (late,) = (r for r in outcome.requests if r.status == "timeout")
    assert late.error == "unfinished 0.5 s after it was sent"
    assert 0.4e9 < (late.t_end_ns or 0) - (late.t_send_ns or 0) < 5e9


def test_headers_and_a_prefix_reach_the_server() -> None:
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        target = target_of(f"http://localhost:{port}/llm/v1/", "m", headers=(("X-Team", "a b"),))
        await asyncio.to_thread(measure_cell, cell_spec(**SHORT), target)
        server.close()

    asyncio.run(main())
    asked = [h for h in heads if h]
    assert asked and all(h.startswith(b"POST /llm/v1/completions HTTP/1.1\r\n") for h in asked)
    assert all(b"\r\nX-Team: a b\r\n" in h and b"\r\nHost: localhost:" in h for h in asked)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return self_signed.certificate(tmp_path_factory.mktemp("tls"))


@pytest.mark.parametrize(
    ("host", "options", "expected"),
    [
        ("localhost", {"ca": True}, "ok"),
        ("localhost", {}, "connect_error"),
        ("127.0.0.1", {"ca": True}, "connect_error"),
        ("127.0.0.1", {"verify": False}, "ok"),
    ],
)
def test_https_with_a_certificate_that_is_verified_unless_told_otherwise(
    certificate: tuple[Path, Path], host: str, options: dict[str, bool], expected: str
) -> None:
    cert, key = certificate
    with truth_server(answer_well, tls=self_signed.serving(cert, key)) as url:
        port = url.rsplit(":", 1)[1]
        target = target_of(
            f"https://{host}:{port}/v1",
            "m",
            ca_file=str(cert) if options.get("ca") else None,
            verify=options.get("verify", True),
        )
        outcome = measure_cell(cell_spec(**SHORT), target)
    assert statuses(outcome) == {expected: 8}
    if expected == "connect_error":
        assert "certificate" in (outcome.requests[0].error or "").lower()


def test_a_long_answer_over_https_comes_whole(certificate: tuple[Path, Path]) -> None:
    """Reading rests after each long read, so that others have their turn, and goes on."""

    async def script(reply: Reply, request: dict[str, Any], number: int) -> None:
        reply.head()
        for _ in range(4):
            reply.body(b": ping\n\n" * (1 << 17))
        reply.body(whole_answer(request))
        reply.end()

    with truth_server(script, tls=self_signed.serving(*certificate)) as url:
        outcome = measure_cell(
            cell_spec(**{**SHORT, "drain_timeout_s": 60.0, "num_requests": 2}),
            target_of(url, "m", verify=False),
        )
    assert statuses(outcome) == {"ok": 2}


@pytest.mark.parametrize(
    ("url", "base_url", "authority"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000", "127.0.0.1:8000"),
        ("http://127.0.0.1:8000/v1/", "http://127.0.0.1:8000", "127.0.0.1:8000"),
        ("https://api.example.org/openai/v1", "https://api.example.org/openai", "api.example.org"),
        ("http://[::1]:8000", "http://[::1]:8000", "[::1]:8000"),
        ("http://h", "http://h", "h"),
        ("https://h:80", "https://h:80", "h:80"),
    ],
)
def test_urls_are_read_as_people_write_them(url: str, base_url: str, authority: str) -> None:
    target = target_of(url, "m")
    assert (target.base_url, target.authority) == (base_url, authority)


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:8000",
        "ftp://h",
        "http://",
        "http://h:99999",
        "http://h/?x=1",
        "http://h/a b",
        "",
        "http://h\r\n.x",
    ],
)
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="base URL"):
        target_of(url, "m")


def test_a_password_in_a_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigError) as error:
        target_of("http://me:hunter2@h", "m")
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize(
    "header",
    [("Host", "x"), ("content-length", "5"), ("a b", "x"), ("", "x"), ("X", "a\r\nY: b"), ("X", "ü")],
)
def test_a_header_that_cannot_be_sent_is_refused(header: tuple[str, str]) -> None:
    with pytest.raises(ConfigError, match="header"):
        target_of("http://h", "m", headers=(header,))
