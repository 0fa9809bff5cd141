"""What an edit of a campaign's config touches, and whether Snakemake can see it: by its own records of what each file was made with."""

import base64
import json
import os
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import msgspec

from connector_tax.base.config import CampaignConfig
from connector_tax.base.documents.campaign import CampaignDocument
from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import hash_of, to_json
from connector_tax.base.plan.campaign import campaign_document, config_of
from connector_tax.base.plan.cells import launch_spec, run_spec_hash
from connector_tax.base.records.cell import Phase
from connector_tax.base.records.connector import STORE
from connector_tax.base.redaction import REFERENCE

# Where Snakemake keeps what each file was made with: a record per file, or all of them in a database.
RECORDS = Path(".snakemake", "metadata")
DATABASE = Path(".snakemake", "metadata.db")


def as_stored(config: CampaignConfig) -> CampaignConfig:
    """As ``campaign.json`` will have it, without secrets: what it is compared with has none either."""
    document = campaign_document(config, date="", created_utc="")
    return config_of(msgspec.structs.replace(document, config=json.loads(to_json(document))["config"]))


def unset_since(now: CampaignConfig, then: CampaignConfig) -> list[str]:
    """Variables that ``now`` refers to and ``then`` had put in, since they were set: not those of secrets, nor what an edit brought."""
    found = _references(now) - _references(then)
    return sorted(name for name in found if name not in os.environ and f"${{{name}}}" != STORE)


def edited_costs(now: CampaignConfig, then: CampaignConfig) -> str | None:
    """What of the engine is not as it was, where nothing of it is edited in the config file: the content of its cost model."""
    if now.engine == then.engine or replace(now.engine, model_sha256=then.engine.model_sha256) != then.engine:
        return None
    named = f"engine.model_file ({now.engine.model_file})"
    if then.engine.model_sha256 is None:
        return f"the content of {named}, which the version that began the campaign did not write down"
    return f"the content of {named}"


def _references(config: CampaignConfig) -> frozenset[str]:
    """Variables whose values are not in it: secrets, and what is not set."""
    return frozenset(REFERENCE.findall(str(msgspec.to_builtins(config))))


def launches_hash(config: CampaignConfig) -> str:
    """Of what preflight tries; by Python's ``==`` an argument that is true would be one that is 1."""
    return hash_of([msgspec.to_builtins(launch_spec(config, c)) for c in config.connector_ids])


def spec_of(config: CampaignConfig, connector_id: str, phase: Phase) -> str | None:
    """None where it is not part of the campaign."""
    wanted = phase in config.phases and connector_id in config.members(phase)
    return run_spec_hash(config, connector_id, phase) if wanted else None


def has_record(path: Path) -> bool:
    """Whether Snakemake knows what ``path`` was made with. A record that a full disk or a power cut left empty or torn says nothing."""
    name = base64.urlsafe_b64encode(str(path).encode()).decode()
    # A file's name has 255 characters at most; of longer ones Snakemake makes folders.
    *folders, last = (name[k : k + 254] for k in range(0, len(name), 254))
    record = RECORDS.joinpath(*(f"@{part}" for part in folders), last)
    try:
        return bool(json.loads(record.read_bytes())) or _is_in_database(path)
    except (OSError, ValueError):
        return _is_in_database(path)


def _is_in_database(path: Path) -> bool:
    """Whether Snakemake has its record there, as with ``--persistence-backend db``; of another checkout's it knows nothing."""
    if not DATABASE.is_file():
        return False
    try:
        with closing(sqlite3.connect(f"{DATABASE.absolute().as_uri()}?mode=ro", uri=True)) as database:
            found = database.execute(
                "SELECT 1 FROM snakemake_metadata WHERE namespace = ? AND target = ?",
                (str(DATABASE.parent.absolute()), str(path)),
            )
            return found.fetchone() is not None
    except sqlite3.Error:
        return False


def config_before(document: CampaignDocument) -> CampaignConfig | None:
    """None of one that another version wrote: of such it is not known what an edit touches."""
    try:
        return config_of(document)
    except ArtifactError:
        return None
