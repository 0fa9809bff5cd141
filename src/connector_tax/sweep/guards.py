"""What a sweep refuses before it writes or starts anything: results of another sweep, and results of another release than the entry now names."""

import subprocess
from pathlib import Path
from typing import Any

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.config.checked import read_yaml
from connector_tax.base.config.model import ContainerConfig
from connector_tax.base.config.sweep import Sweep, SweepCell
from connector_tax.base.documents.identity import unlike_versions
from connector_tax.base.documents.preflight import PreflightStatus
from connector_tax.base.documents.reading import read_document
from connector_tax.base.errors import ArtifactError, ConfigError, EngineError
from connector_tax.base.opening import printable
from connector_tax.run.engine.command import engine_python
from connector_tax.run.engine.identity import interpreter_answer
from connector_tax.sweep.folder import SweepFolder


def refuse_others_results(sweep: Sweep, folder: SweepFolder, results: Path) -> None:
    """
    Raises:
        ConfigError: another file has this sweep's name, or a campaign's results folder is another sweep's or a link. Results of another campaign
            are refused by that campaign's own start.
    """
    _refuse_other_file(sweep, folder)
    for cell in sweep.cells:
        others = sorted(p for p in folder.root.parent.glob(f"*/{cell.name}.yaml") if p.parent != folder.root)
        if others:
            raise ConfigError(
                f"{sweep.path}: campaign {cell.name} ({cell.words}): results/{cell.name} belongs to sweep {others[0].parent.name}, whose file for it is "
                f"{others[0]}. Rename this sweep or an entry. Where that sweep is no more, remove that file."
            )
        if (results / cell.name).is_symlink():
            raise ConfigError(
                f"{sweep.path}: campaign {cell.name} ({cell.words}): results/{cell.name} is a link, perhaps to another campaign's results, which would be "
                "measured over; no table or series reads behind it. Put the folder itself there, or remove the link."
            )


def _refuse_other_file(sweep: Sweep, folder: SweepFolder) -> None:
    """A copy of a sweep's file that kept its name would be taken for an edit, and measured over the original's results."""
    other = folder.other_file(sweep)
    if other is None:
        return
    try:
        named = read_yaml(other).get("sweep")
    except ConfigError:
        named = sweep.name  # as long as somebody edits it
    if named == sweep.name:
        raise ConfigError(
            f"{sweep.path}: sweep: {sweep.name} is the name of {printable(str(other), 300)}, whose campaigns would be measured over. Give one of the two "
            "another name; where this file takes the other's place, remove the other."
        )


def refuse_another_release(sweep: Sweep, results: Path) -> None:
    """Which interpreter a campaign has is in no launch, since an environment may move; so Snakemake would find nothing to do, and call that a success.

    Raises:
        ConfigError: a campaign has cells of another release than its interpreter has now.
    """
    answers: dict[tuple[str, ContainerConfig | None], dict[str, Any]] = {}
    for cell in sweep.order:
        versions = _measured_with(cell, CampaignFolder(results / cell.name))
        if not versions:
            continue
        try:
            python = engine_python(cell.config.engine)
            asked = python, cell.config.engine.container
            if asked not in answers:
                answers[asked] = interpreter_answer(cell.config.engine)
        except (ConfigError, EngineError, OSError, subprocess.TimeoutExpired):
            continue  # it may run on the hosts of a batch system alone; a start that needs it says so, and the other campaigns are measured
        if unlike := unlike_versions(versions, answers[asked]):
            was, has = (
                ", ".join(f"{k} {printable(str(v.get(k)), 80)}" for k in unlike)
                for v in (versions, answers[asked])
            )
            raise ConfigError(
                f"{sweep.path}: campaign {cell.name} ({cell.words}) was measured with {was}; engine.python {printable(python, 300)} has {has}. "
                f"Nothing of it would be measured again. Give the entry another name, so that it is a campaign of its own, or move results/{cell.name} away."
            )


def _measured_with(cell: SweepCell, folder: CampaignFolder) -> dict[str, Any]:
    """Empty where nothing is measured that could be of another release."""
    if cell.config.engine.kind == "emulator" or not folder.preflight_status.exists():
        return {}
    if not any(run.finished_cells() for run in folder.runs()):
        return {}
    try:
        return dict(read_document(folder.preflight_status, PreflightStatus).engine)
    except ArtifactError:
        return {}  # preflight writes it anew
