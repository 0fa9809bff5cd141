"""A Mooncake bootstrap server without producers, for launching a consumer alone.

    python launch/plugins/dummy_bootstrap.py PORT

Speaks the protocol of vLLM's own server (``MooncakeBootstrapServer`` in 0.16 and newer). By role:

* ``kv_producer`` and ``kv_both`` start their own bootstrap server on VLLM_MOONCAKE_BOOTSTRAP_PORT, which
  must be free, and register each worker with it: ``POST /register``.
* ``kv_consumer`` starts none. It asks ``GET /query`` only if a request names a remote engine's address,
  which no request of this project does. An empty answer fails that request alone.

A worker that registers nevertheless (``bootstrap_server_address`` in the extra config) gets ``ok``, but is
not stored. Standard library only.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Bootstrap(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._answer("/query", {})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._answer("/register", {"status": "ok"})

    def _answer(self, path: str, value: dict[str, str]) -> None:
        is_known = self.path == path
        body = json.dumps(value if is_known else {"detail": "Not Found"}).encode()
        self.send_response(200 if is_known else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Bootstrap).serve_forever()
