"""The paths under ``results/<campaign>/``; the only place that spells these names."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import PACKED, bare, is_bare, is_date, is_regular, shown
from connector_tax.base.records.cell import Phase, is_phase, phase_label

# The engine's own output. It may hold secrets until it is masked after the launch.
LOGS = ("vllm_stdout.log", "vllm_stderr.log")
RUN_FILES = ("config.json", "launch.sh", *LOGS, "env.txt", "summary.json")
RECEIPT = "receipt.json"
# A launch on a virtual GPU: the parameters of its clock, and, until the run is done, the clock's record of
# every step.
VIRTUAL_GPU = "virtual_gpu.json"
DEVICE_CLOCK = Path("steps") / "device_clock.jsonl"


class _At:
    """A descriptor: the path of a name in its owner's folder."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, folder: "CampaignFolder | RunFolder | CellFolder", kind: object) -> Path:
        return folder.path / self._name


@dataclass(frozen=True, slots=True)
class CampaignFolder:
    """``results/<campaign>/``."""

    root: Path

    campaign_file = _At("campaign.json")
    preflight = _At("preflight")
    preflight_status = _At("preflight/preflight_status.json")
    # The duration of each preflight.
    preflight_launches = _At("preflight/launches.json")
    # Held by the Snakemake process that works on the campaign; contains its pid.
    start_lock = _At(".start.lock")
    # Held while measuring; shared if several engines may run.
    lock = _At(".lock")
    # Held while leftovers are ended, if several engines may run.
    clearing_lock = _At(".locks/clearing.lock")
    reference_rates = _At("reference_rates.json")
    # The taxes that the embedded engine's model injects; only on that engine.
    put_in = _At("put_in.json")
    aggregate = _At("aggregate.json")
    aggregate_csv = _At("aggregate.csv")
    figures = _At("figures")
    report = _At("report.html")
    manifest = _At("MANIFEST.tsv")
    logs = _At("logs")
    progress_log = _At("logs/progress.log")
    engine_diff = _At("engine_diff.json")

    @property
    def path(self) -> Path:
        return self.root

    def run_lock(self, run: "RunFolder") -> Path:
        """Return the lock held while ``run`` is measured, if several engines may run."""
        return self.root / ".locks" / f"{run.path.parent.name}_{run.path.name}.lock"

    def run(self, date: str, connector_id: str, phase: Phase) -> "RunFolder":
        """Return one run's folder.

        Raises:
            ArtifactError: a part of the path would lead out of the folder.
        """
        if not is_date(date):
            raise ArtifactError(f"date {shown(date)} is none (YYYY-MM-DD). Nothing is read or written there.")
        bare(connector_id, "configuration")
        bare(phase, "phase")
        return RunFolder(self.root / f"{date}_{connector_id}" / f"phase_{phase}", connector_id, phase)

    def engine_settings(self, connector_id: str) -> Path:
        """Return the file of an engine's resolved settings in preflight."""
        return self.preflight / bare(connector_id, "configuration") / "engine_settings.json"

    def runs(self) -> list["RunFolder"]:
        """Return every run folder on disk, finished or not, sorted by name."""
        found = []
        for folder in sorted(self.root.glob("????-??-??_*/phase_*")):
            phase = folder.name.removeprefix("phase_")
            run = RunFolder(folder, folder.parent.name[11:], phase)
            if folder.is_dir() and is_phase(phase) and _is_run_name(folder.parent.name):
                found.append(run)
        return found

    def measured_on(self) -> str | None:
        """Return the date in the names of its runs, if any.

        It replaces a lost ``campaign.json``'s: under another date everything would be measured again.
        """
        runs = self.root.glob("????-??-??_*") if self.root.is_dir() else ()
        return max((p.name[:10] for p in runs if is_date(p.name[:10])), default=None)

    def refuse_what_is_no_folder(self, runs: Iterable["RunFolder"]) -> None:
        """Refuse anything that lies in the place of a folder, before the first launch.

        Args:
            runs: all of the campaign, existing or not; none for reading.

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
                    f"{path}: a file lies where a folder belongs. Move it away, then start again; nothing was"
                    " launched."
                )


def _is_run_name(name: str) -> bool:
    return is_date(name[:10]) and name[10:11] == "_" and is_bare(name[11:])


@dataclass(frozen=True, slots=True)
class RunFolder:
    """``<date>_<connector>/phase_<p>/``: the files of one configuration in one phase."""

    path: Path
    connector_id: str
    phase: Phase

    receipt = _At(RECEIPT)
    # The duration of each launch of this run.
    launches = _At("launches.json")
    config = _At("config.json")
    launch_sh = _At("launch.sh")
    stdout = _At("vllm_stdout.log")
    stderr = _At("vllm_stderr.log")
    env = _At("env.txt")
    summary = _At("summary.json")
    # The run's accuracy pass.
    outputs = _At("accuracy.json")
    # The value of AGENTIC_STEP_LOG_PATH; each engine process appends its own name.
    step_log = _At("steps/engine_step.jsonl")
    # Samples of the whole launch, later divided among its cells.
    raw_metrics = _At("steps/metrics.jsonl")
    cells = _At("cells")

    def cell(self, cell_id: str) -> "CellFolder":
        """Return one cell's folder.

        Raises:
            ArtifactError: ``cell_id`` is no bare name.
        """
        return CellFolder(self.cells / bare(cell_id, "cell"), self.phase, cell_id)

    def finished_cells(self) -> list["CellFolder"]:
        """Return the cells in their final place; temporary ones start with a dot."""
        if not self.cells.is_dir():
            return []
        names = sorted(p.name for p in self.cells.iterdir() if p.is_dir())
        return [self.cell(name) for name in names if is_bare(name)]


@dataclass(frozen=True, slots=True)
class CellFolder:
    """``cells/<cell_id>/``, or the temporary folder that becomes it."""

    path: Path
    phase: Phase
    cell_id: str

    @property
    def temporary(self) -> "CellFolder":
        return CellFolder(self.path.with_name(f".{self.cell_id}.partial"), self.phase, self.cell_id)

    cell_json = _At("cell.json")

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
        """Return a stream's path; in a published campaign it may be packed."""
        plain = self.path / f"{kind}_{phase_label(self.phase)}_{self.cell_id}.jsonl"
        packed = plain.with_name(plain.name + PACKED)
        return packed if is_regular(packed) and not is_regular(plain) else plain
