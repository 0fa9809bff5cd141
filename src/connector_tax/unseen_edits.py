"""A config that was edited where Snakemake has no record of the results: nothing would be measured again, and nobody would say so."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from connector_tax.base.artifacts.layout import CampaignFolder, RunFolder
from connector_tax.base.artifacts.receipts import read_receipt
from connector_tax.base.config import CampaignConfig
from connector_tax.base.documents.rates import ReferenceRatesFile
from connector_tax.base.documents.reading import read_document
from connector_tax.base.errors import ArtifactError
from connector_tax.base.plan.edits import (
    as_stored,
    edited_costs,
    has_record,
    launches_hash,
    spec_of,
    unset_since,
)


def refuse_an_unseen_edit(
    config: CampaignConfig,
    then: CampaignConfig,
    runs: Sequence[RunFolder] | None,
    folder: CampaignFolder,
    where: str,
) -> None:
    """Snakemake sees an edited config by its own records, and takes a file without one for what is wanted. A checkout that lost
    ``.snakemake``, or a new one that was given the results, has none.

    Args:
        then: the config of the last start.
        runs: all that are wanted, there or not; None where nothing is measured.
        where: the config file, for messages.

    Raises:
        ArtifactError: a file is there that was made for another config, and nobody would make it again; names all of them.
    """
    now = as_stored(config)
    made = {folder.aggregate: now.analysis != then.analysis}
    if runs is not None:
        made[folder.preflight_status] = launches_hash(now) != launches_hash(then)
        made |= {
            run.receipt: spec_of(now, run.connector_id, run.phase)
            != spec_of(then, run.connector_id, run.phase)
            for run in runs
        }
        made |= dict.fromkeys(_receipts_of_another_config(config, now, runs, folder), True)
    unseen = [
        str(path) for path, edited in made.items() if edited and path.is_file() and not has_record(path)
    ]
    unset = unset_since(now, then)
    if unseen and unset:
        raise ArtifactError(
            f"{where}: refers to variables that are not set here and were at the last start of campaign {config.campaign}: "
            f"{', '.join(unset)}. Set them as they were: Snakemake has no record of what {unseen[0]} ({len(unseen)} files) was made with, "
            "so it would take it for what is wanted now."
        )
    if unseen:
        costs = edited_costs(now, then)
        changed = "edited" if costs is None else f"changed is {costs},"
        raise ArtifactError(
            f"{where}: {changed} since campaign {config.campaign} was measured, and Snakemake has no record of what these files "
            f"({len(unseen)}) were made with (.snakemake was removed or is another checkout's, or `connector-tax advance` measured), "
            "so it would take them for what is wanted now. "
            "Put back what was edited; or remove them, and start again: cells are kept that the edit does not touch.\n"
            f"rm {shlex.join(unseen)}"
        )


def refuse_another_campaign(
    config: CampaignConfig, then: CampaignConfig | None, runs: Sequence[RunFolder], folder: CampaignFolder
) -> None:
    """Before a start measures, and writes its name into ``campaign.json``.

    Args:
        then, runs: as above.

    Raises:
        ArtifactError: what is there was measured under another name, as in a folder that was renamed; names a file of it.
    """
    others = {run.receipt: _campaign_of(run) for run in runs if run.receipt.is_file()}
    if then is not None and any(run.path.exists() for run in runs):
        others |= {folder.campaign_file: then.campaign}
    others = {path: name for path, name in others.items() if name not in (None, config.campaign)}
    if others:
        path, name = next(iter(others.items()))
        raise ArtifactError(
            f"{path}: of campaign {name} ({len(others)} files), and {config.campaign} is to be measured. Cells name their campaign, and those of "
            "another are left out. Give the folder and `campaign` in the config the name back, or remove what is of the other campaign; "
            "then start again. `figures` and `report` read a renamed folder as it is."
        )


def _receipts_of_another_config(
    config: CampaignConfig, stored: CampaignConfig, runs: Sequence[RunFolder], folder: CampaignFolder
) -> list[Path]:
    """Of which Snakemake has no record: a start with an edit may have been interrupted, and ``campaign.json`` is edited since then.

    Args:
        stored: the config as ``campaign.json`` will have it.
    """
    unknown = [run for run in runs if run.receipt.is_file() and not has_record(run.receipt)]
    if not unknown:
        return []
    # It reads results, which few starts have to.
    from connector_tax.base.plan.ended import of_another_config

    # Rates that were selected anew are newer than what was measured at the earlier ones, which Snakemake sees.
    rates, selected_ns = None, 0
    if folder.reference_rates.is_file():
        rates = read_document(folder.reference_rates, ReferenceRatesFile).rates
        selected_ns = folder.reference_rates.stat().st_mtime_ns
    seen = [run for run in unknown if run.receipt.stat().st_mtime_ns < selected_ns]
    others = of_another_config(config, stored, seen, None)
    others += of_another_config(config, stored, [run for run in unknown if run not in seen], rates)
    # One of another campaign, as in a folder that was renamed, is of no edit; a start that measures refuses it.
    return [run.receipt for run in others if _campaign_of(run) in (None, config.campaign)]


def _campaign_of(run: RunFolder) -> str | None:
    """Of its receipt; None where that cannot be read."""
    try:
        return read_receipt(run).campaign
    except ArtifactError:
        return None
