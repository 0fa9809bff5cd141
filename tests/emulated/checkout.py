"""A copy of the project to run the whole DAG in, with a campaign short enough for a test."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).parents[1]))
from host_faults import LIMITS_ON_THE_CLIENT

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


class Project:
    """A checkout of its own, so that a test can kill, edit and break it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()
        for part in PARTS:
            source = ROOT / part
            if source.is_dir():
                # With its byte code, which each process of the test would compile anew, but for what another test is just writing.
                shutil.copytree(source, root / part, ignore=shutil.ignore_patterns("*.pyc.*"))
            else:
                shutil.copy2(source, root / part)
        lifted = tuple((f"\n{name} = ", f"\n{name} = 1e9 + ") for name in LIMITS_ON_THE_CLIENT)
        self.replace("src/connector_tax/run/loadgen/health.py", *lifted)
        # Of the virtual GPU's clock, for the same reason.
        self.replace(
            "src/connector_tax/base/documents/cell.py", ("\nMAX_LATE_SHARE = ", "\nMAX_LATE_SHARE = 1e9 + ")
        )
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

    def command(self, *targets: str, config: str = "config/test.yaml", cores: int = 1) -> list[str]:
        snakemake = [sys.executable, "-m", "snakemake", *targets, "--cores", str(cores)]
        return [*snakemake, "--configfile", config]

    def snakemake(self, *targets: str, **options: Any) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            self.command(*targets, **options),
            cwd=self.root,
            env=self.environment,
            capture_output=True,
            text=True,
        )

    def start(self, *targets: str, cores: int = 1) -> "subprocess.Popen[bytes]":
        log = open(self.root / "snakemake.log", "ab")  # noqa: SIM115 - open for the life of the process
        return subprocess.Popen(
            self.command(*targets, cores=cores),
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
