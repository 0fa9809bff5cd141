"""A Mooncake bootstrap server that no producer has registered with, for launching a consumer alone.

    python launch/plugins/dummy_bootstrap.py PORT

Speaks what vLLM's own server does (``MooncakeBootstrapServer`` in 0.16 and newer). By role:

* ``kv_producer`` and ``kv_both`` start a bootstrap server of their own on VLLM_MOONCAKE_BOOTSTRAP_PORT, which must be free,
  and register each worker with it: ``POST /register``.
* ``kv_consumer`` starts none, and asks for ``GET /query`` only when a request names a remote engine's address, which no
  request of this project does. An empty answer means that nobody is known, and fails that request alone.

A worker that registers here all the same (``bootstrap_server_address`` in the extra config) is remembered and told to
others. Standard library only.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import Any

FIELDS = {"engine_id": str, "dp_rank": int, "tp_rank": int, "pp_rank": int, "addr": str}


class Registry:
    """Workers by data-parallel, tensor-parallel and pipeline rank."""

    def __init__(self) -> None:
        self.engines: dict[int, dict[str, Any]] = {}
        self._lock = Lock()

    def register(self, worker: dict[str, Any]) -> str | None:
        """None, or why the worker is refused."""
        with self._lock:
            new: dict[str, Any] = {"engine_id": worker["engine_id"], "worker_addr": {}}
            engine = self.engines.setdefault(worker["dp_rank"], new)
            if engine["engine_id"] != worker["engine_id"]:
                return f"dp_rank {worker['dp_rank']} is engine {engine['engine_id']}"
            ranks = engine["worker_addr"].setdefault(worker["tp_rank"], {})
            # The same again is a client that did not hear the first answer.
            if ranks.setdefault(worker["pp_rank"], worker["addr"]) != worker["addr"]:
                return f"that rank is registered at {ranks[worker['pp_rank']]}"
        return None


class Bootstrap(BaseHTTPRequestHandler):
    registry = Registry()

    def do_GET(self) -> None:
        if self.path == "/query":
            self._answer(200, self.registry.engines)
        else:
            self._answer(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path != "/register":
            self._answer(404, {"detail": "Not Found"})
            return
        try:
            worker = json.loads(body)
            wrong = [name for name, kind in FIELDS.items() if type(worker.get(name)) is not kind]
        except (ValueError, AttributeError):
            wrong = ["body"]
        refused = None if wrong else self.registry.register(worker)
        if wrong:
            self._answer(422, {"detail": f"missing or of another type: {', '.join(wrong)}"})
        elif refused is not None:
            self._answer(400, {"detail": refused})
        else:
            self._answer(200, {"status": "ok"})

    def _answer(self, code: int, value: dict[Any, Any]) -> None:
        body = json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Bootstrap).serve_forever()
