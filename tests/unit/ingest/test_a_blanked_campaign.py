"""A campaign of a version that blanked a written-out key is read as it was: its cells belong to it."""

import json
import sys
from pathlib import Path

import msgspec

from connector_tax.base.artifacts.cells import read_cell
from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.documents.aggregate import Problem
from connector_tax.base.documents.campaign import CampaignDocument
from connector_tax.base.files import document_of, to_json
from connector_tax.base.plan import campaign_document, cells_of, config_of, launch_spec
from connector_tax.base.secrets import MASKED
from connector_tax.read.ingest.cells import other_campaign

sys.path.insert(0, str(Path(__file__).parents[2]))
from builders import DATE, Campaign, campaign_config


def test_a_cell_with_its_key_blanked_belongs_to_a_campaign_with_its_key_blanked(tmp_path: Path) -> None:
    config = campaign_config(engine={"args": {"max_model_len": 4096}})
    config.engine.args["api_key"] = MASKED
    spec = cells_of(config, "plain", "a")[0]
    run = CampaignFolder(tmp_path).run(DATE, "plain", "a")
    (folder,) = Campaign(tmp_path / "made", config).measure("plain")[:1]
    cell = msgspec.structs.replace(read_cell(folder), launch=launch_spec(config, "plain"))
    text = to_json(campaign_document(config, date=DATE, created_utc=""))
    plan = config_of(document_of(json.loads(text), CampaignDocument, "campaign.json"))
    assert other_campaign(plan, run, run.cell(spec.cell_id), cell) == []
    args = {"api_key": MASKED, "max_model_len": 2048}
    other = msgspec.structs.replace(cell, launch=msgspec.structs.replace(cell.launch, args=args))
    assert other_campaign(plan, run, run.cell(spec.cell_id), other) == [
        Problem("launched_otherwise", names=("args",))
    ]
