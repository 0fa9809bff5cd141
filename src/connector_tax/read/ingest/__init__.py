"""Reads raw artifacts into tables. Each fault is named as data; nothing is silently averaged."""

from connector_tax.base.documents.aggregate import Problem
from connector_tax.read.ingest.campaign import CampaignData, RunData, read_campaign
from connector_tax.read.ingest.cells import CellData

__all__ = ["CampaignData", "CellData", "Problem", "RunData", "read_campaign"]
