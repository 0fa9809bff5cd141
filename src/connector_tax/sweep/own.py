"""Whether results are those of the campaign that the sweep defines now, and not of one before an edit, of another or of a part of it."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.config import CampaignConfig
from connector_tax.base.config.sweep import unlike
from connector_tax.base.documents.aggregate import Aggregate
from connector_tax.base.documents.campaign import CampaignDocument
from connector_tax.base.files import to_json
from connector_tax.base.opening import printable
from connector_tax.base.plan import campaign_document, config_of, run_spec_hash
from connector_tax.base.records.bounds import Foreign
from connector_tax.read.stats.provenance import settings_of

# Of the environment of the shell that measured, where this one does not have the variable.
FROM_ENVIRONMENT = ("python", "model")


@dataclass(frozen=True, slots=True)
class Fault:
    """
    Attributes:
        stands: whether numbers stand nevertheless, since only what was measured later is not in them.
    """

    why: str
    stands: bool = False


def fault_of(config: CampaignConfig, folder: Path, aggregate: Aggregate) -> Fault | None:
    """Why the aggregate in ``folder`` is not all of this campaign's; None where it is."""
    if folder.is_symlink():
        return Fault("a link, which is not followed")
    if aggregate.campaign != config.campaign:
        return Fault(f"results of campaign {printable(aggregate.campaign, 100)}, not of this one")
    if keys := sorted(_unlike(config, aggregate)):
        return Fault(f"analysed before an edit ({printable(', '.join(keys), 200)})")
    if others := sorted(set(config.connector_ids) ^ set(_connectors_of(aggregate))):
        return Fault(f"analysed with other connectors ({printable(', '.join(others), 200)})", stands=True)
    if _has_newer_receipts(folder):
        return Fault("runs that were measured since are not in it", stands=True)
    return None


def edited(config: CampaignConfig, document: CampaignDocument) -> list[str]:
    """Keys that are another today than in ``campaign.json``; none where none of them measures or analyses anything again.

    Raises:
        ArtifactError: ``campaign.json`` is of another version.
    """
    ours, theirs = _written(config, document.config), document.config
    keys = sorted(k for k in {*ours, *theirs} if unlike(ours.get(k), theirs.get(k)))
    if not keys or unlike(ours["analysis"], theirs.get("analysis")):
        return keys
    # Of both as a file has them, since secrets are in hashes and in no file.
    return keys if _hashes(replace(document, config=ours)) != _hashes(document) else []


def _hashes(document: CampaignDocument) -> dict[tuple[str, str], str]:
    """As Snakemake has them."""
    config = config_of(document)
    return {
        (phase, connector): run_spec_hash(config, connector, phase)
        for phase in config.phases
        for connector in config.members(phase)
    }


def _written(config: CampaignConfig, theirs: Foreign) -> dict[str, Any]:
    """As ``campaign.json`` has it; what is in variables that this shell has not is not known, and taken from there."""
    document = campaign_document(config, date="", created_utc="")
    ours: dict[str, Any] = json.loads(to_json(document))["config"]
    for key in FROM_ENVIRONMENT:
        if "${" in (ours["engine"][key] or ""):
            ours["engine"][key] = theirs.get("engine", {}).get(key)
    return ours


def _unlike(config: CampaignConfig, aggregate: Aggregate) -> Iterator[str]:
    """Names of what both say and say differently."""
    found = aggregate.provenance
    ours = _written(config, {"engine": {"model": found.model}})
    engine = ours["engine"]
    for name, own, its in (
        ("engine.kind", engine["kind"], found.engine_kind),
        ("engine.model", engine["model"], found.model),
        ("engine.args", engine["args"], found.engine_args),
        ("seed", ours["seed"], found.seed),
    ):
        if its is not None and unlike(own, its):
            yield name
    yield from _differing(settings_of(ours), found.settings or {}, "")


def _differing(own: Foreign, its: Foreign, place: str) -> Iterator[str]:
    for name in own.keys() & its.keys():
        a, b = own[name], its[name]
        if isinstance(a, dict) and isinstance(b, dict) and name != "env" and name != "kv_transfer_config":
            yield from _differing(a, b, f"{place}{name}.")
        elif unlike(a, b):
            yield f"{place}{name}"


def _connectors_of(aggregate: Aggregate) -> tuple[str, ...]:
    settings = aggregate.provenance.settings or {}
    return tuple(settings.get("connectors", ())) or aggregate.config_ids


def _has_newer_receipts(folder: Path) -> bool:
    """As Snakemake sees it, by the files' times."""
    campaign = CampaignFolder(folder)
    analysed = campaign.aggregate.stat().st_mtime_ns
    return any(run.receipt.stat().st_mtime_ns > analysed for run in campaign.runs() if run.receipt.exists())
