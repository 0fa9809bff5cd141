"""Measures campaigns whose taxes are known, and reads their analysis back as JSON."""

import json
import shutil
from copy import copy
from pathlib import Path
from typing import Any

from builders import SMALL, Campaign, campaign_config
from invented_server import Behaviour

from connector_tax.base.documents.aggregate import written
from connector_tax.base.files import to_json
from connector_tax.read.ingest import CampaignData, read_campaign
from connector_tax.read.stats.aggregate import aggregate

PLAIN = Behaviour(noise=0.05)
TAXED = {
    "plain": PLAIN,
    "plain_again": PLAIN,
    "noop_connector": PLAIN.taxed(0.0, hooks_us=(2.0, 1.0, 1.0)),
    "mooncake_both": PLAIN.taxed(0.30),
    "nixl_both": PLAIN.taxed(0.20),
}
# Mooncake saturates between 4 and 8 req/s, plain does not: ref_safe is 4, ref_load 8.
QUEUED = {**TAXED, "mooncake_both": Behaviour(130, 13, 0.05, capacity_per_s=7, hooks_us=(1, 1, 1))}


def campaign_of(root: Path, behaviours: dict[str, Behaviour] = TAXED, **sections: Any) -> Campaign:
    """Return a campaign to measure, with few resamples and steps."""
    quick = {**SMALL, "analysis": {"bootstrap_draws": 200}, **sections}
    return Campaign(root, campaign_config(**quick), behaviours, max_steps=60)


def copy_of(campaign: Campaign, root: Path) -> Campaign:
    """Return a copy of a campaign on disk, to be damaged."""
    shutil.copytree(campaign.root, root)
    twin = copy(campaign)
    twin.root = root
    return twin


def aggregate_json(data: CampaignData) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(to_json(written(aggregate(data))))
    return found


def analysed(campaign: Campaign) -> dict[str, Any]:
    return aggregate_json(read_campaign(campaign.root))


def rows(value: dict[str, Any], table: str, **wanted: Any) -> list[dict[str, Any]]:
    """Return the rows of a table that have these values."""
    return [row for row in value[table] if all(row.get(k) == v for k, v in wanted.items())]


def one(value: dict[str, Any], table: str, **wanted: Any) -> dict[str, Any]:
    (row,) = rows(value, table, **wanted)
    return row
