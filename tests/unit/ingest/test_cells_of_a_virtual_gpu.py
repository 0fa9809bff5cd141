"""Cells of a virtual GPU as the analysis reads them: their form, what they may be compared with, and what is passed on."""

import copy
import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from analysed import aggregate_json
from builders import ENGINE, ROOT, Campaign, reseal
from virtual_gpus import CLOCK, IDENTITY, clocked_campaign, model_in

from connector_tax.base.documents.aggregate import aggregate_of
from connector_tax.base.documents.cell import cell_of
from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import read_json, write_json
from connector_tax.read.ingest import read_campaign
from connector_tax.read.stats.cell_rows import aggregate_csv

SCHEMA = json.loads((ROOT / "workflow" / "schemas" / "aggregate.schema.json").read_text())
ON_H200 = {**ENGINE, "kind": "virtual_gpu", "gpu": [], "virtual_gpu": IDENTITY}


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    """Phase A of plain and the no-op connector, on a virtual H200."""
    config = clocked_campaign(model_in(tmp_path / "model"), args={"max_model_len": 8192})
    found = Campaign(tmp_path / "campaign", config)
    for connector in ("plain", "noop_connector"):
        found.measure(connector, "a", engine=ON_H200, health={"device_clock": CLOCK})
    return found


def folder_of(campaign: Campaign, connector: str) -> Any:
    return campaign.run(connector, "a").finished_cells()[0]


def test_cells_are_usable_and_belong_to_the_campaign(campaign: Campaign) -> None:
    """Their launch, read from JSON, is the campaign's."""
    data = read_campaign(campaign.root, steps=False)
    assert not data.problems
    assert all(cell.usable for cell in data.cells())


def test_what_the_clock_went_by_is_in_the_aggregate(campaign: Campaign) -> None:
    found = aggregate_json(read_campaign(campaign.root))
    assert found["provenance"]["virtual_gpu"] == IDENTITY
    assert found["provenance"]["engine_kind"] == "virtual_gpu"
    assert {c["health"]["device_clock"]["late_share"] for c in found["cells"]} == {0.0051}
    jsonschema.Draft202012Validator(SCHEMA).validate(found)
    table = list(csv.DictReader(io.StringIO(aggregate_csv(aggregate_of(found)))))
    assert {row["device_slack_p10_us"] for row in table} == {"7000.0"}
    assert {row["device_late_share"] for row in table} == {"0.0051"}


def test_a_cell_on_another_clock_is_not_compared(campaign: Campaign) -> None:
    folder = folder_of(campaign, "noop_connector")
    document = read_json(folder.cell_json)
    document["engine"]["virtual_gpu"]["sha256"] = "f" * 16
    write_json(folder.cell_json, document)
    reseal(folder)
    campaign.receipt("noop_connector")
    data = read_campaign(campaign.root, steps=False)
    assert "virtual GPU ffffffffffffffff / 0123456789abcdef" in str(data.problems)
    assert sum(not cell.usable for cell in data.cells()) == 1


@pytest.mark.parametrize(
    ("path", "value", "fault"),
    [
        (("health", "device_clock"), 1, "Expected `object`, got `int` - at `$.health.device_clock`"),
        (
            ("health", "device_clock", "late_share"),
            1e300,
            "Expected `float` <= 1000000000000.0 - at `$.health",
        ),
        (
            ("health", "device_clock", "lateness_us"),
            {"p50": 1.0},
            "missing required field `p99` - at `$.health",
        ),
        (("health", "stand_ins"), [1], "Expected `str`, got `int` - at `$.health.stand_ins[0]`"),
        (
            ("engine", "virtual_gpu", "step", "base_us"),
            -1.0,
            "Expected `float` > 0.0 - at `$.engine.virtual_gpu.step",
        ),
    ],
)
def test_a_strangers_clock_has_the_form_that_readers_rely_on(
    campaign: Campaign, path: tuple[str, ...], value: Any, fault: str
) -> None:
    document = copy.deepcopy(read_json(folder_of(campaign, "plain").cell_json))
    cell_of(document, "cell.json")
    inner = document
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    with pytest.raises(ArtifactError, match=re.escape(fault)):
        cell_of(document, "cell.json")
