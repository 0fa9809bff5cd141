"""Where things lie under ``results/<campaign>/``; the only place that spells these names."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from connector_tax.base.errors import ArtifactError
from connector_tax.base.opening import PACKED, bare, is_bare, is_date, is_regular, shown
from connector_tax.base.records.cell import Phase, is_phase, phase_label

# What an engine prints itself, secrets among it until somebody has gone through it when the launch is over.
LOGS = ("vllm_stdout.log", "vllm_stderr.log")
RUN_FILES = ("config.json", "launch.sh", *LOGS, "env.txt", "summary.json")
RECEIPT = "receipt.json"
# Of a launch on a virtual GPU: what its clock goes by; and, until the run is done, what the clock says of every step.
VIRTUAL_GPU = "virtual_gpu.json"
DEVICE_CLOCK = Path("steps") / "device_clock.jsonl"


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
    def lock(self) -> Path:
        """Held by whoever measures; shared where several engines may run."""
        return self.root / ".lock"

    def run_lock(self, run: "RunFolder") -> Path:
        """Held by who measures ``run``, where several engines may run."""
        return self.root / ".locks" / f"{run.path.parent.name}_{run.path.name}.lock"

    @property
    def clearing_lock(self) -> Path:
        """Held by who ends what killed measurements left, where several engines may run."""
        return self.root / ".locks" / "clearing.lock"

    @property
    def reference_rates(self) -> Path:
        return self.root / "reference_rates.json"

    @property
    def put_in(self) -> Path:
        """What the model of the embedded engine gives; of campaigns on that engine alone."""
        return self.root / "put_in.json"

    @property
    def aggregate(self) -> Path:
        return self.root / "aggregate.json"

    @property
    def aggregate_csv(self) -> Path:
        return self.root / "aggregate.csv"

    @property
    def figures(self) -> Path:
        return self.root / "figures"

    @property
    def report(self) -> Path:
        return self.root / "report.html"

    @property
    def manifest(self) -> Path:
        return self.root / "MANIFEST.tsv"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def progress_log(self) -> Path:
        return self.logs / "progress.log"

    @property
    def packed(self) -> Path:
        """How what is elsewhere, too, stood when it was packed last, or taken."""
        return self.root / ".packed.json"

    def run(self, date: str, connector_id: str, phase: Phase) -> "RunFolder":
        """
        Raises:
            ArtifactError: a part of the path would lead out of the folder.
        """
        if not is_date(date):
            raise ArtifactError(f"date {shown(date)} is none (YYYY-MM-DD). Nothing is read or written there.")
        bare(connector_id, "configuration")
        bare(phase, "phase")
        return RunFolder(self.root / f"{date}_{connector_id}" / f"phase_{phase}", connector_id, phase)

    def engine_settings(self, connector_id: str) -> Path:
        """What the engine of a configuration resolved, as preflight saw it."""
        return self.preflight / bare(connector_id, "configuration") / "engine_settings.json"

    @property
    def engine_diff(self) -> Path:
        return self.root / "engine_diff.json"

    def runs(self) -> list["RunFolder"]:
        """Every run folder on disk, in name order, finished or not."""
        found = []
        for folder in sorted(self.root.glob("????-??-??_*/phase_*")):
            phase = folder.name.removeprefix("phase_")
            run = RunFolder(folder, folder.parent.name[11:], phase)
            if folder.is_dir() and is_phase(phase) and _is_run_name(folder.parent.name):
                found.append(run)
        return found

    def measured_on(self) -> str | None:
        """The date that its runs are named by, where ``campaign.json`` is gone: with another one all would be measured again."""
        runs = self.root.glob("????-??-??_*") if self.root.is_dir() else ()
        return max((p.name[:10] for p in runs if is_date(p.name[:10])), default=None)

    def refuse_what_is_no_folder(self, runs: Iterable["RunFolder"]) -> None:
        """Before anything is launched.

        Args:
            runs: all of the campaign, there or not; none where it is only read.

        Raises:
            ArtifactError: something else lies where a folder belongs.
        """
        runs = list(runs)
        wanted = [self.root, *([self.logs, self.preflight] if runs else [])]
        wanted += dict.fromkeys(run.path.parent for run in runs)
        wanted += [run.path for run in runs] + [run.cells for run in runs]
        for path in wanted:
            if os.path.lexists(path) and not path.is_dir():
                raise ArtifactError(
                    f"{path}: a file lies where a folder belongs. Move it away, then start again; nothing was launched."
                )


def _is_run_name(name: str) -> bool:
    return is_date(name[:10]) and name[10:11] == "_" and is_bare(name[11:])


@dataclass(frozen=True, slots=True)
class RunFolder:
    """``<date>_<connector>/phase_<p>/``: what one configuration left behind in one phase."""

    path: Path
    connector_id: str
    phase: Phase

    @property
    def receipt(self) -> Path:
        return self.path / RECEIPT

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
        """
        Raises:
            ArtifactError: ``cell_id`` is no bare name.
        """
        return CellFolder(self.cells / bare(cell_id, "cell"), self.phase, cell_id)

    def finished_cells(self) -> list["CellFolder"]:
        """Cells that were renamed into place; temporary ones start with a dot and do not count."""
        if not self.cells.is_dir():
            return []
        names = sorted(p.name for p in self.cells.iterdir() if p.is_dir())
        return [self.cell(name) for name in names if is_bare(name)]


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

    @property
    def device_clock(self) -> Path:
        return self._stream("device_clock")

    def _stream(self, kind: str) -> Path:
        """In a published campaign it may be packed."""
        plain = self.path / f"{kind}_{phase_label(self.phase)}_{self.cell_id}.jsonl"
        packed = plain.with_name(plain.name + PACKED)
        return packed if is_regular(packed) and not is_regular(plain) else plain
