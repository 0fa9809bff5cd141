"""What the golden campaigns ask of the product: the one file of theirs that names its modules.

Where a module moves, an import changes here; where an entry point changes, its function does, and no value in ``data/``.
The made campaigns are laid out by ``tests/builders.py``, which has imports of its own.
"""

import json
from pathlib import Path
from typing import Any

from connector_tax.base.artifacts.layout import CampaignFolder, RunFolder
from connector_tax.base.artifacts.receipts import write_receipt
from connector_tax.base.config import CampaignConfig, parse_campaign
from connector_tax.base.config.checked import PROJECT_ROOT, read_yaml
from connector_tax.base.documents.rates import ReferenceRatesFile
from connector_tax.base.errors import ConfigError
from connector_tax.base.files import read_document, to_json, write_json
from connector_tax.base.parallel import each_in
from connector_tax.base.plan import config_of, read_campaign_file
from connector_tax.base.records.cell import Phase
from connector_tax.base.records.sessions import read_sessions
from connector_tax.cli import command
from connector_tax.fleet.campaign import Source
from connector_tax.fleet.document import document, table
from connector_tax.fleet.run import Member, run_study, slos
from connector_tax.fleet.study import given_profiles, load_study
from connector_tax.load.plan import load_of
from connector_tax.load.sources import write_prompts, write_trace
from connector_tax.read.analysis import analyse
from connector_tax.read.bundle import unpack
from connector_tax.run.rehearsal.campaign import rehearse
from connector_tax.run.rehearsal.cell import taxes_put_in
from connector_tax.run.workload.prompts import read_prompts

__all__ = ["PROJECT_ROOT", "CampaignConfig", "ConfigError", "Phase", "read_yaml", "unpack"]


def campaign_config(mapping: dict[str, Any]) -> CampaignConfig:
    return parse_campaign(mapping, "a golden campaign")


def rehearsed(config: CampaignConfig, folder: Path, *, launches: int) -> Path:
    """A campaign in virtual time, and beside it the taxes that its cost model gives over so many launches."""
    root, _ = rehearse(config, folder, seed=1, processes=1)
    campaign = CampaignFolder(root)
    rates = read_document(campaign.reference_rates, ReferenceRatesFile)
    write_json(
        campaign.put_in, taxes_put_in(config_of(read_campaign_file(campaign.campaign_file)), rates, launches)
    )
    return root


def analysed(root: Path) -> tuple[Any, str]:
    """``aggregate.json``, parsed, and ``aggregate.csv`` of the campaign's raw results."""
    analyse(root, processes=1)
    folder = CampaignFolder(root)
    aggregate = json.loads(folder.aggregate.read_text(encoding="utf-8"))
    return aggregate, folder.aggregate_csv.read_text(encoding="utf-8")


def fail(run: RunFolder, campaign: str, reason: str, *, keep: int, status: Any = "failed") -> None:
    """Give a run a receipt without success, that lists its first cells; the others are gone."""
    cells = run.finished_cells()
    for cell in cells[keep:]:
        for path in cell.path.iterdir():
            path.unlink()
        cell.path.rmdir()
    kept = [cell.cell_id for cell in cells[:keep]]
    write_receipt(run, campaign=campaign, status=status, reason=reason, cell_ids=kept)


def simulated_fleet(study_file: Path) -> tuple[Any, str]:
    """``fleet.json``, parsed, and ``fleet.csv`` of a study whose profiles are given."""
    study = load_study(study_file)
    profiles = given_profiles(study, str(study_file))
    patterns = slos(study, None)
    with each_in(1) as each:
        found = run_study(study, [Member("given", None, profiles)], patterns, each)
    fleet = document(study, Source(None, {}, {}), patterns, {"given": profiles}, found)
    return json.loads(to_json(fleet)), table(fleet)


# --- Old faults


def requests_of_trace(source: Path, into: Path) -> list[list[float]]:
    """(input tokens, output tokens, milliseconds until it is due) of each request that a trace becomes."""
    write_trace(source, into, speed=1.0)
    sessions = read_sessions(into)
    return [[s.turns[0].new_tokens, s.turns[0].output_tokens, 1000 * (s.arrival_s or 0.0)] for s in sessions]


def contents_of_prompts(source: Path, into: Path) -> list[Any]:
    write_prompts(source, into, output_lengths=None, seed=7)
    return [prompt.content for prompt in read_prompts(into)]


def check_load(options: list[str], out: Path) -> None:
    """What ``connector-tax load`` refuses before it asks a server."""
    given = [*options, "--base-url", "http://127.0.0.1:8000", "--model", "m", "--out", str(out)]
    load_of(command("load").parser().parse_args(given))
