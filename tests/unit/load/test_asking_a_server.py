"""What ``connector-tax load`` asks of a server beside its load: over TLS, with the key, and whatever a stranger answers."""

import gzip
import http.server
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
import self_signed
from made_outcomes import spec_of
from truth_server import Reply, truth_server

from connector_tax.base import direct
from connector_tax.base.errors import ConfigError
from connector_tax.base.records.target import RequestForm, target_of
from connector_tax.load.server import CacheCounters, failure_of, measure_words, reach
from connector_tax.run.loadgen.cell import measure_cell

Handler = http.server.BaseHTTPRequestHandler
MODELS = b'{"data": [{"id": "m"}]}'
HITS = b"# TYPE vllm:prefix_cache_hits counter\nvllm:prefix_cache_hits_total 8\n"


@contextmanager
def answering(answer: Callable[[Handler], None], tls: ssl.SSLContext | None = None) -> Iterator[str]:
    class Answers(Handler):
        def do_GET(self) -> None:
            answer(self)

        def log_message(self, *_: object) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def whole(handler: Handler, body: bytes, status: int = 200, **headers: str) -> None:
    handler.send_response(status)
    for name, value in {"Content-Length": str(len(body)), **headers}.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(body)


def test_hits_of_a_prefix_cache_are_told_over_tls_and_to_whom_has_the_key(tmp_path: Path) -> None:
    def answer(handler: Handler) -> None:
        known = handler.headers["Authorization"] == "Bearer s3cret"
        whole(handler, HITS if known else b"", 200 if known else 401)

    cert, key = self_signed.certificate(tmp_path, "IP:127.0.0.1")
    with answering(answer, self_signed.serving(cert, key)) as url:
        bearer = (("Authorization", "Bearer s3cret"),)
        for how in ({"ca_file": str(cert)}, {"verify": False}):
            target = target_of(url, "m", headers=bearer, **how)  # type: ignore[arg-type]
            assert CacheCounters(target).now() == {"prefix_cache_hits": 8.0}


NOT_KNOWN = "Hits of a prefix cache are not known."


def test_metrics_are_asked_where_the_server_refers_to(capsys: pytest.CaptureFixture[str]) -> None:
    """A mounted application answers one slash further."""

    def answer(handler: Handler) -> None:
        there = handler.path == "/metrics/"
        whole(handler, HITS if there else b"", 200 if there else 307, Location="/metrics/")

    with answering(answer) as url:
        assert CacheCounters(target_of(url, "m")).now() == {"prefix_cache_hits": 8.0}
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("status", "page", "headers", "said"),
    [
        (401, HITS, {}, "HTTP 401"),
        (200, b"# TYPE sglang:cache_hit_rate gauge\nsglang:cache_hit_rate 0.5\n", {}, "no counter of a prefix cache"),
        (307, b"", {"Location": "http://192.0.2.1/metrics"}, "it refers to http://192.0.2.1"),
        (307, b"", {"Location": "/metrics"}, "HTTP 307"),
        (307, b"", {"Location": "http://[::"}, "/metrics"),
    ],
)  # fmt: skip
def test_why_hits_are_not_known_is_said_once(
    status: int, page: bytes, headers: dict[str, str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with answering(lambda handler: whole(handler, page, status, **headers)) as url:
        counters = CacheCounters(target_of(url, "m"))
        for _ in range(4):
            assert "prefix_cache_hits" not in counters.now()
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line and f"{url}/metrics" in line and line.endswith(NOT_KNOWN)


def asks_for_a_certificate(folder: Path) -> tuple[Path, Path, ssl.SSLContext]:
    """A server's certificate, by which it also knows its clients; its key; and what it serves with."""
    cert, key = self_signed.certificate(folder, "IP:127.0.0.1")
    context = self_signed.serving(cert, key)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cert)
    return cert, key, context


def test_a_server_that_asks_for_a_certificate_is_shown_one_by_questions_and_requests(tmp_path: Path) -> None:
    """The client's key may stand in its certificate's file."""
    cert, key, context = asks_for_a_certificate(tmp_path)
    both = tmp_path / "both.pem"
    both.write_text(cert.read_text() + key.read_text())
    with truth_server(tls=context) as url:
        for files in ((str(cert), str(key)), (str(both), None)):
            target = reach(target_of(url, "", ca_file=str(cert), client_cert=files[0], client_key=files[1]))
            outcome = measure_cell(spec_of(num_requests=3, duration_s=0.0, rate_per_s=50.0), target)
            assert [r.status for r in outcome.requests] == ["ok"] * 3


@pytest.mark.parametrize(("name", "key"), [("none.pem", None), ("cert.pem", "locked.pem")])
def test_a_client_certificate_without_its_key_is_said(name: str, key: str | None, tmp_path: Path) -> None:
    """Without a question for a password on the terminal."""
    _, bare = self_signed.certificate(tmp_path)
    lock = ["openssl", "rsa", "-aes256", "-passout", "pass:secret", "-in", str(bare)]
    subprocess.run([*lock, "-out", str(tmp_path / "locked.pem")], check=True, capture_output=True)
    shown = {"client_cert": str(tmp_path / name), "client_key": key and str(tmp_path / key)}
    with pytest.raises(ConfigError, match=f"--client-cert .*{name}: no certificate with its key"):
        reach(target_of("https://127.0.0.1:9", "", **shown))  # type: ignore[arg-type]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_refused_client_certificate_is_said(version: ssl.TLSVersion, tmp_path: Path) -> None:
    """The server is there: nobody has to start it."""
    (tmp_path / "client").mkdir()
    cert, _, context = asks_for_a_certificate(tmp_path)
    unknown, its_key = self_signed.certificate(tmp_path / "client")
    context.maximum_version = version
    with answering(lambda handler: whole(handler, MODELS), context) as url:
        with pytest.raises(ConfigError, match="refuses the certificate"):
            reach(target_of(url, "", ca_file=str(cert), client_cert=str(unknown), client_key=str(its_key)))
        with pytest.raises(ConfigError, match=r"(?i)name (one|yours) as --client-cert"):
            reach(target_of(url, "", ca_file=str(cert)))


def test_no_authority_helps_where_a_certificate_has_expired() -> None:
    failed = "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed"
    assert "clock" in failure_of(f"{failed}: certificate has expired (_ssl.c:1006)")[1]
    assert "--ca-file" in failure_of(f"{failed}: self-signed certificate (_ssl.c:1006)")[1]


def test_names_of_models_move_no_cursor() -> None:
    models = b'{"data": [{"id": "m\\n\\u001b[31m"}, {"id": "other"}]}'
    with answering(lambda handler: whole(handler, models)) as url:
        with pytest.raises(ConfigError, match="serves m") as caught:
            reach(target_of(url, ""))
        assert str(caught.value).isprintable()


def test_a_model_that_is_listed_twice_is_one() -> None:
    with answering(lambda handler: whole(handler, b'{"data": [{"id": "m"}, {"id": "m"}]}')) as url:
        assert reach(target_of(url, "")).model == "m"


def test_a_server_that_fails_the_question_for_words_is_quoted_in_one_line() -> None:
    async def fail(reply: Reply, request: dict[str, Any], number: int) -> None:
        reply.head("500 Oops", "text/plain")
        reply.body(b"no memory\n\x1b[31mleft")
        reply.end()

    with truth_server(fail) as url, pytest.raises(ConfigError) as caught:
        measure_words(target_of(url, "m"), RequestForm(api="chat"), 1)
    assert "(HTTP 500: no memory" in str(caught.value) and str(caught.value).isprintable()


def test_a_certificate_for_another_name_is_not_answered_with_an_authority(tmp_path: Path) -> None:
    cert, key = self_signed.certificate(tmp_path, "DNS:elsewhere.example")
    with answering(lambda handler: whole(handler, MODELS), self_signed.serving(cert, key)) as url:
        with pytest.raises(ConfigError, match="Use a name that it was made for") as caught:
            reach(target_of(url, "", ca_file=str(cert)))
        assert "--ca-file" not in str(caught.value)
        assert reach(target_of(url, "", verify=False)).model == "m"


@pytest.mark.parametrize(
    ("head", "forever", "raised"),
    [
        (b"", b"X-A: b\r\n", httpx.ReadTimeout),
        (b"\r\n", b" ", httpx.ReadTimeout),
        (b"\r\n", b"x" * 200_000, httpx.ReadError),
    ],
    ids=["a head that trickles", "a body that trickles", "a body that flows"],
)
def test_an_answer_without_an_end_ends_in_time(
    head: bytes, forever: bytes, raised: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(handler: Handler) -> None:
        try:
            handler.wfile.write(b"HTTP/1.1 200 OK\r\n" + head)
            while True:
                handler.wfile.write(forever)
                time.sleep(0.02)
        except OSError:
            return

    monkeypatch.setattr(direct, "MOST_ANSWER_BYTES", 1 << 20)
    within_s = 0.3 if raised is httpx.ReadTimeout else 30.0
    start = time.monotonic()
    with answering(answer) as url, pytest.raises(raised, match=r"without an end after (0\.3 s|1 MiB)"):
        direct.get(url, timeout_s=within_s)
    assert time.monotonic() - start < 5


@pytest.mark.parametrize("charset", ["zip", "no-such"])
def test_a_charset_that_is_none_is_no_matter(charset: str) -> None:
    with answering(lambda handler: whole(handler, MODELS, Content_Type=f"x/y; charset={charset}")) as url:
        assert reach(target_of(url, "")).model == "m"
        assert direct.get(url, timeout_s=5).text == MODELS.decode()
    with (
        answering(lambda handler: whole(handler, b"\xff no", Content_Type=f"x/y; charset={charset}")) as url,
        pytest.raises(ConfigError, match=r"/v1/models there \(not a list of models"),
    ):
        reach(target_of(url, ""))


@pytest.mark.parametrize(
    ("status", "headers", "said"),
    [
        (307, {"Location": "https://elsewhere.example/v1"}, r"it refers to 'https://elsewhere.example/v1' \(HTTP 307\)"),
        (500, {}, "500 Internal Server Error"),
        (401, {}, r"HTTP 401.*--api-key-env"),
    ],
)  # fmt: skip
def test_what_a_server_says_in_place_of_models_is_one_line(
    status: int, headers: dict[str, str], said: str
) -> None:
    with (
        answering(lambda handler: whole(handler, b"", status, **headers)) as url,
        pytest.raises(ConfigError, match=said) as caught,
    ):
        reach(target_of(url, ""))
    assert str(caught.value).isprintable()


def test_an_answer_that_is_compressed_twice_is_not_unpacked() -> None:
    once = gzip.compress(b" " * 1000)
    with answering(lambda handler: whole(handler, gzip.compress(MODELS), Content_Encoding="gzip")) as url:
        assert reach(target_of(url, "")).model == "m"
    with (
        answering(lambda handler: whole(handler, gzip.compress(once), Content_Encoding="gzip, gzip")) as url,
        pytest.raises(httpx.DecodingError, match="compressed 2 times"),
    ):
        direct.get(url, timeout_s=5)
