"""Ordinary surprises of a host: a blank in the checkout's path, a variable that is no text, a proxy in the environment."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from checkout import Project

pytestmark = pytest.mark.emulated
# Nobody listens there. A question to the engine that went through it would never be answered.
PROXY = "http://127.0.0.1:9"


def test_a_campaign_is_measured_there_all_the_same(tmp_path: Path) -> None:
    """Preflight and one cell: every rule finds its interpreter, and what is asked of loopback stays there."""
    project = Project(tmp_path / "a check'out {1}")

    def small(config: dict[str, Any]) -> None:
        config["connectors"] = ["plain"]
        config["phase_a"]["rates_per_s"] = [10]
        config["phase_b_prime"] = {}

    project.configure(small)
    (project.root / ".venv").symlink_to(sys.prefix)
    proxies = dict.fromkeys(
        ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"), PROXY
    )
    environment = os.environb | {
        os.fsencode(k): os.fsencode(v) for k, v in {**project.environment, **proxies}.items()
    }
    environment |= {b"VLLM_CAFE": b"caf\xe9", b"CAFE": b"\xff"}
    command = [str(project.root / ".venv" / "bin" / "python"), *project.command("phase_a")[1:]]
    done = subprocess.run(command, cwd=project.root, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    (cell,) = project.cells()
    document = json.loads((project.results / cell / "cell.json").read_text())
    assert document["summary"]["statuses"] == {"ok": document["summary"]["n_window"]}
    # Without counters no sample is right and nothing is known of the caches.
    assert document["prefix_cache_hits_delta"] == 0
    env_txt = (project.results / cell).parents[1] / "env.txt"
    assert "VLLM_CAFE=caf\\udce9\n" in env_txt.read_text()
