"""Where things lie under ``results/<campaign>/``; the only place that spells these names."""

from dataclasses import dataclass
from pathlib import Path

from connector_tax.records.cell import Phase, is_phase, phase_label

RUN_FILES = ("config.json", "launch.sh", "vllm_stdout.log", "vllm_stderr.log", "env.txt", "summary.json")


@dataclass(frozen=True, slots=True)
class CampaignFolder:
    """``results/<campaign>/``."""

    root: Path

    @property
    def campaign_file(self) -> Path:
        return self.root / "campaign.json"

    @property
    def preflight(self) -> Path:
        return self.root / "preflight"

    @property
    def preflight_status(self) -> Path:
        return self.preflight / "preflight_status.json"

    @property
    def preflight_launches(self) -> Path:
        """How long each preflight took."""
        return self.preflight / "launches.json"

    @property
    def start_lock(self) -> Path:
        """Held by the Snakemake process that works on the campaign; holds its pid."""
        return self.root / ".start.lock"

    @property
    def reference_rates(self) -> Path:
        return self.root / "reference_rates.json"

    @property
    def aggregate(self) -> Path:
        return self.root / "aggregate.json"

    @property
    def aggregate_csv(self) -> Path:
        return self.root / "aggregate.csv"

    @property
    def figures(self) -> Path:
        return self.root / "figures"

    def step_table(self, cell: "CellFolder") -> Path:
        """Columns of a cell's step records; can be removed at any time and is made again from them."""
        return (self.root / "tables" / cell.path.relative_to(self.root)).with_suffix(".parquet")

    @property
    def report(self) -> Path:
        return self.root / "report.html"

    @property
    def manifest(self) -> Path:
        return self.root / "MANIFEST.tsv"

    @property
    def progress_log(self) -> Path:
        return self.root / "logs" / "progress.log"

    def run(self, date: str, connector_id: str, phase: Phase) -> "RunFolder":
        return RunFolder(self.root / f"{date}_{connector_id}" / f"phase_{phase}", connector_id, phase)

    def engine_settings(self, connector_id: str) -> Path:
        """What the engine of a configuration resolved, as preflight saw it."""
        return self.preflight / connector_id / "engine_settings.json"

    @property
    def engine_diff(self) -> Path:
        return self.root / "engine_diff.json"

    def runs(self) -> list["RunFolder"]:
        """Every run folder on disk, in name order, finished or not."""
        found = []
        for folder in sorted(self.root.glob("????-??-??_*/phase_*")):
            phase = folder.name.removeprefix("phase_")
            if folder.is_dir() and is_phase(phase):
                connector_id = folder.parent.name[11:]
                found.append(RunFolder(folder, connector_id, phase))
        return found


@dataclass(frozen=True, slots=True)
class RunFolder:
    """``<date>_<connector>/phase_<p>/``: what one configuration left behind in one phase."""

    path: Path
    connector_id: str
    phase: Phase

    @property
    def receipt(self) -> Path:
        return self.path / "receipt.json"

    @property
    def launches(self) -> Path:
        """How long each launch of this run took."""
        return self.path / "launches.json"

    @property
    def config(self) -> Path:
        return self.path / "config.json"

    @property
    def launch_sh(self) -> Path:
        return self.path / "launch.sh"

    @property
    def stdout(self) -> Path:
        return self.path / "vllm_stdout.log"

    @property
    def stderr(self) -> Path:
        return self.path / "vllm_stderr.log"

    @property
    def env(self) -> Path:
        return self.path / "env.txt"

    @property
    def summary(self) -> Path:
        return self.path / "summary.json"

    @property
    def outputs(self) -> Path:
        """The accuracy pass of this run."""
        return self.path / "accuracy.json"

    @property
    def step_log(self) -> Path:
        """What AGENTIC_STEP_LOG_PATH is set to; each engine process adds its own name to it."""
        return self.path / "steps" / "engine_step.jsonl"

    @property
    def raw_metrics(self) -> Path:
        """Samples of the whole launch; each cell gets its share."""
        return self.path / "steps" / "metrics.jsonl"

    @property
    def cells(self) -> Path:
        return self.path / "cells"

    def cell(self, cell_id: str) -> "CellFolder":
        return CellFolder(self.cells / cell_id, self.phase, cell_id)

    def finished_cells(self) -> list["CellFolder"]:
        """Cells that were renamed into place; temporary ones start with a dot and do not count."""
        if not self.cells.is_dir():
            return []
        names = sorted(p.name for p in self.cells.iterdir() if p.is_dir() and not p.name.startswith("."))
        return [self.cell(name) for name in names]


@dataclass(frozen=True, slots=True)
class CellFolder:
    """``cells/<cell_id>/``; also the temporary folder that becomes it."""

    path: Path
    phase: Phase
    cell_id: str

    @property
    def temporary(self) -> "CellFolder":
        return CellFolder(self.path.with_name(f".{self.cell_id}.partial"), self.phase, self.cell_id)

    @property
    def cell_json(self) -> Path:
        return self.path / "cell.json"

    @property
    def requests(self) -> Path:
        return self._stream("requests")

    @property
    def metrics(self) -> Path:
        return self._stream("metrics")

    @property
    def engine_step(self) -> Path:
        return self._stream("engine_step")

    def _stream(self, kind: str) -> Path:
        return self.path / f"{kind}_{phase_label(self.phase)}_{self.cell_id}.jsonl"
