"""Launches that are only built: an engine's command and its launch.sh."""

import os
import subprocess
from pathlib import Path
from typing import Any

from connector_tax.base.config import EngineConfig
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.records.connector import ConnectorSpec
from connector_tax.run.engine.command import engine_environment
from connector_tax.run.engine.gpus import Cards
from connector_tax.run.engine.launch import Launch


def launch_of(engine: EngineConfig, connector: ConnectorSpec, **changes: Any) -> Launch:
    """Return a launch on the caller's GPUs, by default on port 1."""
    environment = engine_environment(engine, connector, Cards((), 0))
    return Launch(engine, connector, **{"environment": environment, "port": 1, **changes})


def by_hand(script: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run a launch.sh in the project's folder, with nothing else of this shell's environment."""
    bare = {"PATH": os.environ["PATH"], "HOME": "/", **variables}
    return subprocess.run(["bash", str(script)], env=bare, cwd=PROJECT_ROOT, capture_output=True, text=True)
