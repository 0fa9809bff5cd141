"""A bootstrap server that knows nobody, for launching a Mooncake consumer without a producer.

    python launch/plugins/dummy_bootstrap.py PORT

Answers what vLLM's Mooncake connector asks of a bootstrap server: ``GET /query`` gives the known
producers by data-parallel rank (none), ``POST /register`` is accepted and forgotten. A consumer asks
only when a request names a remote engine, which no request of this project does. Standard library only.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Bootstrap(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._answer(200, {}) if self.path == "/query" else self._answer(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        found = self.path == "/register"
        self._answer(200, {"status": "ok"}) if found else self._answer(404, {"detail": "Not Found"})

    def _answer(self, code: int, value: dict[str, str]) -> None:
        body = json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Bootstrap).serve_forever()
