"""The page on 127.0.0.1: three addresses to read, one to ask for a report, and nothing for anybody else's page.

A page that the reader has open elsewhere can send requests here. What it sends carries its own name: as ``Host`` where it had its name
resolve to 127.0.0.1, as ``Origin`` or ``Sec-Fetch-Site`` otherwise. Such requests are refused, and the one that does something also needs
a word that only this page knows.
"""

import errno
import re
import secrets
import sys
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

from connector_tax.base.errors import EngineError
from connector_tax.read.watch.making import Maker
from connector_tax.read.watch.page import View, live_html, page_html, page_policy

LOOPBACK = "127.0.0.1"
# Any port: a tunnel through ssh may have another at the reader's end.
_OWN_HOST = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:[0-9]{1,5})?", re.IGNORECASE)
# Of a form with one short field.
MOST_FORM_BYTES = 1024
SILENT_S = 10
PLAIN, HTML = "text/plain; charset=utf-8", "text/html; charset=utf-8"
NOTHING = "default-src 'none'; frame-ancestors 'none'"


class Server(ThreadingHTTPServer):
    """
    Args:
        port: 0 for any that is free.
        view: finds what is to be shown, each time anew.

    Raises:
        EngineError: the port cannot be had.
    """

    daemon_threads = True
    # Where the standard library shares ports, as in alphas of Python 3.14, two pages would answer by turns.
    allow_reuse_port = False

    def __init__(self, port: int, view: Callable[[], View], maker: Maker) -> None:
        self.view = view
        self.maker = maker
        self.token = secrets.token_urlsafe(24)
        try:
            super().__init__((LOOPBACK, port), _Handler)
        except OSError as error:
            why = (
                "is in use"
                if error.errno == errno.EADDRINUSE
                else f"cannot be had ({error.strerror or error})"
            )
            raise EngineError(
                f"port {port} of {LOOPBACK} {why}. Give another with --port, or --port 0 for any that is free."
            ) from error

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def handle_error(self, request: object, client_address: object) -> None:
        """A reader that went away, or was silent, is no fault; anything else is, and keeps its traceback."""
        if not isinstance(sys.exception(), (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    server: Server
    server_version = "connector-tax"
    sys_version = ""
    timeout = SILENT_S
    error_message_format = "%(code)d %(message)s\n"
    error_content_type = PLAIN

    def do_GET(self) -> None:
        if not self._is_own():
            return
        match self.path.partition("?")[0]:
            case "/":
                text = page_html(self.server.view(), self.server.token)
                self._answer(text.encode(), HTML, {"Content-Security-Policy": page_policy()})
            case "/live":
                text = live_html(self.server.view())
                self._answer(text.encode(), HTML, {"Content-Security-Policy": NOTHING})
            case "/report" if (latest := self.server.maker.state.latest) is not None:
                # The rest of its policy stands in the page.
                policy = "frame-ancestors 'self'; form-action 'none'; base-uri 'none'"
                self._answer(latest.html, HTML, {"Content-Security-Policy": policy})
            case "/report":
                self._refuse(HTTPStatus.NOT_FOUND, "no report was made yet")
            case _:
                self._refuse(HTTPStatus.NOT_FOUND, "there is nothing here; the page is /")

    do_HEAD = do_GET

    def do_POST(self) -> None:
        if not self._is_own(asks=True):
            return
        if self.path != "/report":
            self._refuse(HTTPStatus.NOT_FOUND, "there is nothing to ask for here")
        elif self.server.maker.when == "never":
            self._refuse(HTTPStatus.FORBIDDEN, "no report is made here (--report never)")
        else:
            self.server.maker.ask()
            self.send_response(HTTPStatus.SEE_OTHER)
            self.send_header("Location", "/")
            self.send_header("Content-Length", "0")
            self.end_headers()

    def _not_allowed(self) -> None:
        self._answer(
            b"only GET, HEAD and POST\n", PLAIN, {"Allow": "GET, HEAD, POST"}, HTTPStatus.METHOD_NOT_ALLOWED
        )

    do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_TRACE = do_CONNECT = _not_allowed

    def _is_own(self, *, asks: bool = False) -> bool:
        """Whether the request is of this page, or of a reader who typed its address; else it is refused.

        Args:
            asks: it is to do something.
        """
        hosts, origins = self.headers.get_all("Host", []), self.headers.get_all("Origin", [])
        if len(hosts) != 1 or not _OWN_HOST.fullmatch(hosts[0]):
            # Another name that leads to 127.0.0.1 is how a foreign page gets past a browser's rules.
            self._refuse(
                HTTPStatus.FORBIDDEN, "this page is 127.0.0.1 or localhost, and answers to no other name"
            )
            return False
        own = origins in ([], [f"http://{hosts[0]}"]) if not asks else origins == [f"http://{hosts[0]}"]
        if not own or self.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            self._refuse(HTTPStatus.FORBIDDEN, "requests of other pages are not answered")
            return False
        if asks and not secrets.compare_digest(self._token(), self.server.token.encode()):
            self._refuse(HTTPStatus.FORBIDDEN, "the page is of an earlier start; load it anew")
            return False
        return True

    def _token(self) -> bytes:
        length = self.headers.get("Content-Length", "")
        if not re.fullmatch("[0-9]{1,4}", length) or int(length) > MOST_FORM_BYTES:
            return b""
        found = parse_qs(self.rfile.read(int(length)).decode("ascii", errors="replace"))
        return found.get("token", [""])[0].encode()

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        self._answer(f"{why}\n".encode(), PLAIN, {"Content-Security-Policy": NOTHING}, status)

    def _answer(
        self, body: bytes, kind: str, headers: Mapping[str, str], status: HTTPStatus = HTTPStatus.OK
    ) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def end_headers(self) -> None:
        for name, value in (
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
            ("Cross-Origin-Opener-Policy", "same-origin"),
            ("Referrer-Policy", "same-origin"),
        ):
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: a page that is read anew every few seconds would fill the terminal."""
