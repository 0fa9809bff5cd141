"""One day of a campaign in virtual time, for processes of their own: they import this file and no test."""

from pathlib import Path

from connector_tax.base.config import CampaignConfig
from connector_tax.base.documents.aggregate import TaxRow
from connector_tax.read.ingest import read_campaign
from connector_tax.read.stats.aggregate import aggregate
from connector_tax.run.rehearsal.campaign import rehearse


def rehearsed_day(config: CampaignConfig, results: Path, day: int) -> dict[tuple[str, str], TaxRow]:
    """The headline taxes of one day in virtual time."""
    root, _ = rehearse(config, results / str(day), seed=100 + day, processes=1)
    taxes = aggregate(read_campaign(root, steps=False)).taxes
    return {(t.config, t.metric): t for t in taxes if t.phase == "a" and t.reference == "ref_safe"}
