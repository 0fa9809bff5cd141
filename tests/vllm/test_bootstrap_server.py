"""The bootstrap server that stands in for Mooncake's answers as vLLM's own one does."""

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from connector_tax.run.engine.ports import free_port

pytestmark = pytest.mark.vllm
ROOT = Path(__file__).parents[2]
REAL = """
import sys, time
from vllm.distributed.kv_transfer.kv_connector.v1.mooncake.mooncake_utils import MooncakeBootstrapServer
MooncakeBootstrapServer("127.0.0.1", int(sys.argv[1])).start()
time.sleep(120)
"""
WORKER = {"engine_id": "e0", "dp_rank": 0, "tp_rank": 0, "pp_rank": 0, "addr": "tcp://10.0.0.1:5000"}
# A fresh server, a worker that comes, and a path that there is not.
ASKED: list[tuple[str, str, Any]] = [
    ("GET", "/query", None),
    ("POST", "/register", WORKER),
    ("GET", "/nothing", None),
]


def answers(command: list[str], ready_s: float) -> list[tuple[int, Any]]:
    """Status of each answer, and the body of those that say ok."""
    port = free_port()
    server = subprocess.Popen([*command, str(port)])
    try:
        deadline = time.monotonic() + ready_s
        while True:
            try:
                httpx.get(f"http://127.0.0.1:{port}/query")
                break
            except httpx.TransportError:
                assert server.poll() is None and time.monotonic() < deadline
                time.sleep(0.1)
        found = []
        for method, path, body in ASKED:
            answer = httpx.request(method, f"http://127.0.0.1:{port}{path}", json=body)
            found.append((answer.status_code, answer.json() if answer.status_code == 200 else None))
        return found
    finally:
        server.kill()
        server.wait()


def test_the_stand_in_answers_as_vllms_server_does(engine_python: str) -> None:
    ours = answers([sys.executable, str(ROOT / "launch" / "plugins" / "dummy_bootstrap.py")], 10)
    real = answers([engine_python, "-c", REAL], 120)
    assert [code for code, _ in real] == [200, 200, 404]
    assert ours == real
