"""A copy of the project to run the whole DAG in, with a campaign short enough for a test."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
PARTS = (
    "Snakefile",
    "workflow",
    "profiles",
    "scripts",
    "launch",
    "patches",
    "config",
    "src",
    "pyproject.toml",
)


# The demo's engine, twice as slow: a client that a busy host makes late by milliseconds spoils fewer cells.
STEADIER = (("base_us: 2000", "base_us: 4000"), ("prefill_token_us: 30", "prefill_token_us: 60"))


class Project:
    """A checkout of its own, so that a test can kill, edit and break it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()
        for part in PARTS:
            source = ROOT / part
            if source.is_dir():
                shutil.copytree(source, root / part, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(source, root / part)
        self.replace("config/engine_model_demo.yaml", *STEADIER)
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("CONNECTOR_TAX_")}
        # The copy's own package, not the checkout's; and locks of its own.
        self.environment["PYTHONPATH"] = str(root / "src")
        self.environment["CONNECTOR_TAX_CACHE"] = str(root / "cache")

    def replace(self, path: str, *changes: tuple[str, str]) -> None:
        """Put texts in the place of others, each of which must be there."""
        text = (self.root / path).read_text()
        for old, new in changes:
            assert old in text, f"{path} has no {old!r}"
            text = text.replace(old, new)
        (self.root / path).write_text(text)

    def configure(self, change: Callable[[dict[str, Any]], None] = lambda c: None) -> None:
        """Write ``config/test.yaml``: the demo, cut to three connectors and a few short cells."""
        config = yaml.safe_load((self.root / "config" / "demo.yaml").read_text())
        config["campaign"] = "test"
        config["connectors"] = ["plain", "noop_connector", "mooncake_both"]
        config["phase_a"]["rates_per_s"] = [10, 20]
        config["phase_b"] = {"input_tokens": [64, 256], "output_tokens": [8]}
        config["phase_b_prime"] = {"configs": ["plain"], "shapes": [[64, 8]]}
        config["cell"].update(warmup_s=0.2, duration_s=0.5, min_completed=10)
        config["analysis"]["bootstrap_draws"] = 200
        change(config)
        (self.root / "config" / "test.yaml").write_text(yaml.safe_dump(config))

    def command(self, *targets: str, config: str = "config/test.yaml") -> list[str]:
        snakemake = [sys.executable, "-m", "snakemake", *targets, "--cores", "1"]
        return [*snakemake, "--configfile", config]

    def snakemake(self, *targets: str, **options: Any) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            self.command(*targets, **options),
            cwd=self.root,
            env=self.environment,
            capture_output=True,
            text=True,
        )

    def quiet(self, *targets: str) -> "subprocess.CompletedProcess[str]":
        """``snakemake``, from the beginning again where a busy host spoilt a cell; the third time it stands as it is."""
        for _ in range(2):
            done = self.snakemake(*targets)
            if not self._spoilt():
                return done
            shutil.rmtree(self.root / "results")
            shutil.rmtree(self.root / ".snakemake", ignore_errors=True)
        return self.snakemake(*targets)

    def _spoilt(self) -> bool:
        """Whether a cell is invalid for what the client, and not the engine, was kept from doing."""
        reasons = [
            json.loads(p.read_text())["reasons"] for p in self.results.glob("*/phase_*/cells/[!.]*/cell.json")
        ]
        return any(r and all(x.startswith(("client ", "not streamed")) for x in r) for r in reasons)

    def start(self, *targets: str) -> "subprocess.Popen[bytes]":
        log = open(self.root / "snakemake.log", "ab")  # noqa: SIM115 - open for the life of the process
        return subprocess.Popen(
            self.command(*targets),
            cwd=self.root,
            env=self.environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )

    @property
    def results(self) -> Path:
        return self.root / "results" / "test"

    def cells(self) -> dict[str, int]:
        """Finished cells and when each was renamed into place (of its ``cell.json``)."""
        return {
            str(p.parent.relative_to(self.results)): p.stat().st_mtime_ns
            for p in self.results.glob("*/phase_*/cells/[!.]*/cell.json")
        }
