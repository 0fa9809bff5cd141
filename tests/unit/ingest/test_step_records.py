"""Step records of a campaign: held against their checksums, and the same whatever number of processes reads them."""

import os
import sys
from pathlib import Path

import pytest

from connector_tax.base.artifacts.layout import CellFolder
from connector_tax.base.documents.aggregate import Problem
from connector_tax.base.errors import AnalysisError
from connector_tax.base.files import to_json
from connector_tax.base.parallel import each_in
from connector_tax.read.ingest import read_campaign
from connector_tax.read.stats.aggregate import aggregate

sys.path.insert(0, str(Path(__file__).parents[2]))
from builders import SMALL, Campaign, campaign_config, reseal
from invented_server import Behaviour

CONFIG = campaign_config(
    **{
        **SMALL,
        "connectors": ["plain", "nixl_both"],
        "phase_a": {"rates_per_s": [2, 4], "input_tokens": 256, "output_tokens": 16},
        "phase_b_prime": {"configs": ["plain"], "shapes": [[64, 16]]},
    }
)


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    campaign = Campaign(tmp_path / "c", CONFIG, {"nixl_both": Behaviour().taxed(0.2)}, max_steps=60)
    for connector in ("plain", "nixl_both"):
        campaign.measure(connector, receipt=False)
    return campaign


def cell_of(campaign: Campaign) -> CellFolder:
    return campaign.run("nixl_both", "a").finished_cells()[0]


def analysed(campaign: Campaign) -> str:
    return to_json(aggregate(read_campaign(campaign.root)))


def test_a_hook_that_is_named_twice_keeps_both_of_its_columns(campaign: Campaign) -> None:
    """As of a connector that was made twice in one process."""
    cell = cell_of(campaign)
    header, row = '"patch_sha256":"p"', '"decode_tokens":4}'
    text = cell.engine_step.read_text().replace(header, header + ',"hooks":["h","h"]', 1)
    cell.engine_step.write_text(text.replace(row, '"decode_tokens":4,"hooks":[1000,1,2000,2]}'))
    reseal(cell)
    records = next(
        c.steps
        for r in read_campaign(campaign.root).runs
        for c in r.cells
        if c.cell_id == cell.cell_id and c.config == "nixl_both"
    )
    assert records is not None
    assert records.load().hooks.us[0].tolist() == [1.0, 2.0]
    assert records.load().hooks.calls[0].tolist() == [1, 2]


def test_records_that_differ_from_their_checksum_are_not_read(campaign: Campaign) -> None:
    cell = cell_of(campaign)
    cell.engine_step.write_text(cell.engine_step.read_text().replace('"update_us":20', '"update_us":21', 1))
    (problem,) = read_campaign(campaign.root).problems
    assert problem.because == Problem("file_changed", cell.engine_step.name)


def test_a_process_that_was_killed_is_one_message() -> None:
    with pytest.raises(AnalysisError, match="one of 2 processes was killed"), each_in(2) as each:
        list(each(os._exit, [9]))


def test_several_processes_find_the_same(campaign: Campaign) -> None:
    with each_in(2) as each:
        value = to_json(aggregate(read_campaign(campaign.root, each=each), each))
    assert value == analysed(campaign)
