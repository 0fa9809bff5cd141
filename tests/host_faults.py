"""A small campaign, and scripts run on it as processes on a faulty host (``tests/injected``)."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.config import load_campaign
from connector_tax.base.files import write_json
from connector_tax.base.plan import campaign_document

ROOT = Path(__file__).parents[1]
DATE = "2026-01-01"
# A cell is invalid if the client was late. These tests are about what the pipeline does with cells, on hosts
# that may stop a process for a second, so the limits are lifted.
# tests/unit/load_without_server/test_health.py tests the limits themselves.
LIMITS_ON_THE_CLIENT = (
    "MAX_RATE_ERROR",
    "MAX_WORKER_CPU_SHARE",
    "MAX_DIFFERENCE_P50",
    "MAX_WHOLE_SHARE",
    "MOST_AWAY_MS",
)


def small_campaign(
    root: Path, *, rates: tuple[float, ...] = (20.0,), connectors: tuple[str, ...] = (), **cell: Any
) -> CampaignFolder:
    """Write the demo with short cells and a passed preflight.

    Args:
        connectors: only these; empty: all of the demo.
    """
    folder = CampaignFolder(root / "results" / "demo")
    config = load_campaign(ROOT / "config" / "demo.yaml")
    wanted = tuple(c for c in config.connectors if not connectors or c.id in connectors)
    document = campaign_document(
        replace(config, connectors=wanted), date=DATE, created_utc="2026-01-01T00:00:00Z"
    )
    settings = document.config
    short = {
        "warmup_s": 0.1,
        "duration_s": 0.4,
        "min_completed": 6,
        "max_cell_s": 1.0,
        "drain_timeout_s": 1.0,
    }
    settings["cell"] |= {**short, **cell}
    settings["accuracy"]["prompts"] = 1
    settings["engine"]["stop_grace_s"] = 1
    settings["phase_a_rates_per_s"] = list(rates)
    write_json(folder.campaign_file, document)
    decisions = {c["id"]: {"decision": "include", "reason": None} for c in settings["connectors"]}
    write_json(folder.preflight_status, {"step_timing_available": True, "configs": decisions})
    return folder


def environment(folder: CampaignFolder, **fault: str) -> dict[str, str]:
    """Return a host's environment with ``fault`` (variables of ``tests/injected``), without client limits."""
    given = {k: v for k, v in os.environ.items() if not k.startswith(("CONNECTOR_TAX_", "INJECTED_"))}
    paths = [str(Path(__file__).parent / "injected"), str(ROOT / "src")]
    cache = str(folder.root.parents[1] / "cache")
    own = {"PYTHONPATH": os.pathsep.join(paths), "CONNECTOR_TAX_CACHE": cache}
    return {**given, **fault, **own, "INJECTED_LIFTED": " ".join(LIMITS_ON_THE_CLIENT)}


def measure(
    folder: CampaignFolder, connector: str = "noop_connector", **fault: str
) -> "subprocess.CompletedProcess[str]":
    return door(folder, "measure", "--connector", connector, "--phase", "a", **fault)


def door(
    folder: CampaignFolder, name: str, *arguments: str, **fault: str
) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, f"scripts/{name}.py", "--campaign-file", str(folder.campaign_file), *arguments]
    given = environment(folder, **fault)
    return subprocess.run(command, cwd=ROOT, env=given, capture_output=True, text=True, timeout=120)
