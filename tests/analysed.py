"""Reads an analysis back as JSON, as a reader of the file finds it."""

import json
from typing import Any

from connector_tax.base.documents.aggregate import written
from connector_tax.base.files import to_json
from connector_tax.read.ingest import CampaignData
from connector_tax.read.stats.aggregate import aggregate


def aggregate_json(data: CampaignData) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(to_json(written(aggregate(data))))
    return found
