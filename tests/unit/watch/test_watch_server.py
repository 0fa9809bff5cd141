"""Who is answered on 127.0.0.1, and what: requests of other pages are refused, whatever they call themselves."""

import http.client
import http.server
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from half import half, maker, viewing

from connector_tax.base.errors import EngineError
from connector_tax.read.watch.making import Maker, When
from connector_tax.read.watch.server import Server


@dataclass
class Page:
    server: Server
    maker: Maker

    def ask(
        self, method: str = "GET", path: str = "/", body: str | None = None, **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=10)
        named = {k.replace("_", "-"): v for k, v in headers.items()}
        if body is not None:
            named = {"Content-Type": "application/x-www-form-urlencoded", **named}
        connection.request(method, path, body, named)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer.status, dict(answer.getheaders()), content

    def press(self, **headers: str) -> int:
        own = {"Origin": f"http://127.0.0.1:{self.server.port}", **headers}
        return self.ask("POST", "/report", f"token={self.server.token}", **own)[0]


@contextmanager
def served(root: Path, when: When = "on-request") -> Iterator[Page]:
    """A cell is always under way here, so no report is begun."""
    found = half(root)
    of = maker(found, root / "made", when, under_way=lambda folder: True)
    with Server(0, viewing(found, of), of) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield Page(server, of)
        finally:
            server.shutdown()
            thread.join()
            of.close()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with served(tmp_path_factory.mktemp("served")) as found:
        yield found


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:{port}", 200),
        ("localhost:{port}", 200),
        ("LOCALHOST:9000", 200),  # through a tunnel
        ("[::1]:9000", 200),
        ("localhost", 200),
        ("evil.example", 403),
        ("evil.example:{port}", 403),
        ("127.0.0.1.evil.example:{port}", 403),
        ("localhost.evil.example", 403),
        ("localhost:{port}@evil.example", 403),
        ("evil.example#127.0.0.1", 403),
        ("127.0.0.2:{port}", 403),
        ("", 403),
    ],
)
def test_only_this_host_is_answered_by_name(page: Page, host: str, status: int) -> None:
    for method, path in (
        ("GET", "/"),
        ("HEAD", "/"),
        ("GET", "/live"),
        ("GET", "/report"),
        ("POST", "/report"),
    ):
        found, _, content = page.ask(method, path, Host=host.format(port=page.server.port))
        if status == 403:
            assert found == 403 and b"runs have ended" not in content
        elif path != "/report":
            assert found == 200


def test_no_host_and_two_hosts_are_refused(page: Page) -> None:
    for heads in ("", "Host: localhost\r\nHost: evil.example\r\n"):
        with socket.create_connection(("127.0.0.1", page.server.port), timeout=10) as raw:
            raw.sendall(f"GET / HTTP/1.1\r\n{heads}\r\n".encode())
            assert raw.makefile("rb").readline().split()[1] == b"403"


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:1"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ],
)
def test_other_pages_are_refused(page: Page, headers: dict[str, str]) -> None:
    for path in ("/", "/live", "/report"):
        assert page.ask(path=path, **headers)[0] == 403
    assert page.press(**headers) == 403
    assert page.maker.state.doing == "nothing"


def test_asking_needs_the_page_own_origin_and_word(page: Page) -> None:
    own = f"http://127.0.0.1:{page.server.port}"
    assert page.ask("POST", "/report", f"token={page.server.token}")[0] == 403
    for body in ("", "token=", "token=x", f"token={page.server.token}x", "x" * 5000, "token=%ff%fe"):
        assert page.ask("POST", "/report", body, Origin=own)[0] == 403, body
    for length in ("9" * 5000, "-1", "1e1", "²"):
        heads = f"Host: 127.0.0.1:{page.server.port}\r\nOrigin: {own}\r\nContent-Length: {length}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", page.server.port), timeout=10) as raw:
            raw.sendall(f"POST /report HTTP/1.1\r\n{heads}".encode())
            assert raw.makefile("rb").readline().split()[1] == b"403"
    assert page.ask("POST", "/", f"token={page.server.token}", Origin=own)[0] == 404
    assert page.ask("GET", f"/report?token={page.server.token}")[0] == 404
    assert page.maker.state.doing == "nothing"


def test_who_presses_the_button_comes_back_and_the_report_waits_for_the_cell(tmp_path: Path) -> None:
    with served(tmp_path) as page:
        status, headers, _ = page.ask(
            "POST",
            "/report",
            f"token={page.server.token}",
            Origin=f"http://127.0.0.1:{page.server.port}",
            Sec_Fetch_Site="same-origin",
        )
        assert (status, headers["Location"]) == (303, "/")
        while page.maker.state.doing == "nothing":
            pass
        assert b"as soon as it may" in page.ask()[2]


def test_never_means_that_nobody_can_ask(tmp_path: Path) -> None:
    with served(tmp_path, "never") as page:
        assert page.press() == 403
        assert page.maker.state.doing == "nothing"


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_other_methods_are_refused(page: Page, method: str) -> None:
    assert page.ask(method)[0] == 405
    assert page.ask("BREW")[0] == 501


@pytest.mark.parametrize(
    "path", ["/../../etc/passwd", "/report.html", "/live/", "http://127.0.0.1/", "/%2e%2e/x"]
)
def test_there_is_nothing_else(page: Page, path: str) -> None:
    assert page.ask(path=path)[0] == 404


def test_head_is_get_without_its_content(page: Page) -> None:
    status, headers, content = page.ask("HEAD")
    assert status == 200 and content == b"" and int(headers["Content-Length"]) > 1000
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert headers["Cache-Control"] == "no-store"


def test_it_listens_on_loopback_alone(page: Page) -> None:
    assert page.server.server_address[0] == "127.0.0.1"


def test_a_reader_that_goes_away_or_says_nothing_harms_nobody(
    page: Page, capfd: pytest.CaptureFixture[str]
) -> None:
    for sent in (
        b"",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x00\xa5",
        b"GET " + b"x" * 70_000,
    ):
        with socket.create_connection(("127.0.0.1", page.server.port), timeout=10) as raw:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            raw.sendall(sent)
    assert page.ask()[0] == 200
    assert "Traceback" not in capfd.readouterr().err


def test_a_port_in_use_is_one_message(page: Page) -> None:
    with pytest.raises(
        EngineError, match=rf"port {page.server.port} of 127.0.0.1 is in use. Give another with --port"
    ):
        Server(page.server.port, page.server.view, page.maker)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--port", "8000"], "--port is of the page: give --web, too."),
        (["--during-cells"], "--during-cells is of the page: give --web, too."),
        (["--web", "--port", "70000"], "no port from 0 to 65535"),
        (["--web", "--every", "-1"], "no number of seconds"),
    ],
)
def test_options_that_do_not_fit_are_said(options: list[str], said: str) -> None:
    command = [sys.executable, "-m", "connector_tax", "status", "--configfile", "config/demo.yaml", *options]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2 and said in ended.stderr and "Traceback" not in ended.stderr


def test_no_two_pages_share_a_port_whatever_the_standard_library_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As alphas of Python 3.14 had it. The kernel would hand each request to either."""
    monkeypatch.setattr(http.server.HTTPServer, "allow_reuse_port", True)
    with served(tmp_path) as page, pytest.raises(EngineError, match="is in use"):
        Server(page.server.port, page.server.view, page.maker)
