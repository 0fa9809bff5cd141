"""A small campaign, and doors run on it as processes of their own on a host that has a fault (``tests/injected``)."""

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
# A cell counts only where the client kept time. These tests ask what the pipeline does with cells, on hosts that may stop a
# process for a second; so no cell of theirs is refused for that. tests/unit/load_without_server/test_health.py holds the limits themselves.
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
    """The demo with short cells, preflight passed.

    Args:
        connectors: these alone; empty: all of the demo.
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
    """Of a host with ``fault``, one or more of the variables of ``tests/injected``, and no limits on the client."""
    given = {k: v for k, v in os.environ.items() if not k.startswith(("CONNECTOR_TAX_", "INJECTED_"))}
    paths = [str(Path(__file__).parent / "injected"), str(ROOT / "src")]
    cache = str(folder.root.parents[1] / "cache")
    own = {"PYTHONPATH": os.pathsep.join(paths), "CONNECTOR_TAX_CACHE": cache}
    return {**given, **fault, **own, "INJECTED_LIFTED": " ".join(LIMITS_ON_THE_CLIENT)}


def measure(
    folder: CampaignFolder, connector: str = "noop_connector", **fault: str
) -> "subprocess.CompletedProcess[str]":
    """``scripts/measure.py`` of Phase A."""
    return door(folder, "measure", "--connector", connector, "--phase", "a", **fault)


def door(
    folder: CampaignFolder, name: str, *arguments: str, **fault: str
) -> "subprocess.CompletedProcess[str]":
    """A script of the measuring wing."""
    command = [sys.executable, f"scripts/{name}.py", "--campaign-file", str(folder.campaign_file), *arguments]
    given = environment(folder, **fault)
    return subprocess.run(command, cwd=ROOT, env=given, capture_output=True, text=True, timeout=120)
