"""Tables of step records are a memory, never a source: used while nothing has changed, else made again."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from connector_tax.base.artifacts.layout import CellFolder
from connector_tax.base.documents.aggregate import Problem
from connector_tax.base.errors import AnalysisError
from connector_tax.base.files import to_json
from connector_tax.base.parallel import each_in
from connector_tax.read.ingest import read_campaign, tables
from connector_tax.read.ingest.steps import StepTable, read_steps
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


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files whose JSONL was decoded."""
    names: list[str] = []

    def noted(path: Path, window: object, *, connector: bool) -> StepTable:
        names.append(path.name)
        return read_steps(path, window, connector=connector)  # type: ignore[arg-type]

    monkeypatch.setattr(tables, "read_steps", noted)
    return names


def cell_of(campaign: Campaign) -> CellFolder:
    return campaign.run("nixl_both", "a").finished_cells()[0]


def analysed(campaign: Campaign) -> str:
    return to_json(aggregate(read_campaign(campaign.root)))


def test_a_file_is_decoded_once(campaign: Campaign, decoded: list[str]) -> None:
    first = analysed(campaign)
    assert len(decoded) == 4
    assert analysed(campaign) == first, "byte for byte the same from tables"
    assert len(decoded) == 4


def test_a_table_holds_every_column_to_the_last_digit(campaign: Campaign) -> None:
    records = read_campaign(campaign.root).runs[0].cells[0].steps
    assert records is not None
    straight, kept = read_steps(records.source, records.window), records.load()
    for name in (*tables.COLUMNS, *tables.COUNTS):
        assert np.array_equal(getattr(straight, name), getattr(kept, name), equal_nan=name != "torn"), name
    assert straight.hooks.names == kept.hooks.names
    assert np.array_equal(straight.hooks.us, kept.hooks.us, equal_nan=True)
    assert np.array_equal(straight.hooks.calls, kept.hooks.calls, equal_nan=True)


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


def _changed_source(campaign: Campaign, table: Path) -> None:
    cell = cell_of(campaign)
    text = cell.engine_step.read_text()
    before = cell.engine_step.stat()
    cell.engine_step.write_text(text.replace('"update_us":20.000', '"update_us":21.000'))
    # Size and time say nothing: here they are the same.
    os.utime(cell.engine_step, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert cell.engine_step.stat().st_size == before.st_size
    reseal(cell)


def _with_metadata(change: Callable[[dict[str, object]], None]) -> Callable[[Campaign, Path], None]:
    def rewrite(campaign: Campaign, table: Path) -> None:
        found = pq.read_table(table)
        facts = json.loads(found.schema.metadata[tables.KEY])
        change(facts["made_of"])
        pq.write_table(found.replace_schema_metadata({tables.KEY: json.dumps(facts)}), table)

    return rewrite


def _with_many_hooks(campaign: Campaign, table: Path) -> None:
    """One pair of columns under a name that the metadata list a thousand times: columns for each would be made of it."""
    found = pq.read_table(table)
    facts = json.loads(found.schema.metadata[tables.KEY])
    facts["hooks"] = ["h"] * 1000
    for name in ("us:h", "calls:h", "us:0", "calls:0"):
        found = found.append_column(name, pa.array(np.zeros(found.num_rows)))
    pq.write_table(
        found.replace_schema_metadata({tables.KEY: json.dumps(facts)}), table, write_page_checksum=True
    )


def _torn(campaign: Campaign, table: Path) -> None:
    table.write_bytes(table.read_bytes()[:-100])


def _flipped(campaign: Campaign, table: Path) -> None:
    """A byte in the middle of a page: the metadata at the end are whole."""
    content = bytearray(table.read_bytes())
    content[200] ^= 0xFF
    table.write_bytes(bytes(content))


def _of_another_cell(campaign: Campaign, table: Path) -> None:
    other = campaign.folder.step_table(campaign.run("plain", "a").finished_cells()[0])
    table.write_bytes(other.read_bytes())


def _foreign(campaign: Campaign, table: Path) -> None:
    pq.write_table(pq.read_table(table).replace_schema_metadata({}), table)


@pytest.mark.parametrize(
    "change",
    [
        _changed_source,
        _with_metadata(lambda made_of: made_of.update(schema=0)),
        _with_metadata(lambda made_of: made_of.update(code_sha256="of an older reader")),
        _with_metadata(lambda made_of: made_of.update(window_ns=[0, 1])),
        _with_metadata(lambda made_of: made_of.update(source={"sha256": "of other records"})),
        _with_many_hooks,
        _torn,
        _flipped,
        _of_another_cell,
        _foreign,
    ],
)
def test_a_table_that_is_stale_torn_or_foreign_is_made_again(
    campaign: Campaign, decoded: list[str], change: Callable[[Campaign, Path], None]
) -> None:
    analysed(campaign)
    cell = cell_of(campaign)
    table = campaign.folder.step_table(cell)
    change(campaign, table)
    decoded.clear()
    value = analysed(campaign)
    assert decoded == [cell.engine_step.name]
    decoded.clear()
    assert analysed(campaign) == value and decoded == [], "what was made again is used"
    table.unlink()
    assert analysed(campaign) == value, "and says what the records say"


def test_records_that_differ_from_their_checksum_are_not_excused_by_a_table(campaign: Campaign) -> None:
    analysed(campaign)
    cell = cell_of(campaign)
    cell.engine_step.write_text(cell.engine_step.read_text().replace('"update_us":20', '"update_us":21', 1))
    (problem,) = read_campaign(campaign.root).problems
    assert problem.because == Problem("file_changed", cell.engine_step.name)


def test_results_that_cannot_be_written_are_read_all_the_same(campaign: Campaign) -> None:
    """A file where the folder would be stands in for a read-only disk, which root does not notice."""
    expected = analysed(campaign)
    for path in sorted((campaign.root / "tables").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    (campaign.root / "tables").rmdir()
    (campaign.root / "tables").write_text("")
    data = read_campaign(campaign.root)
    assert to_json(aggregate(data)) == expected
    assert len(data.tables_not_kept()) == 4 and "cannot write" in data.tables_not_kept()[0]
    command = [sys.executable, "scripts/analyze.py", "--root", str(campaign.root)]
    shown = subprocess.run(command, cwd=Path(__file__).parents[3], capture_output=True, text=True, check=True)
    assert "4 step tables are not kept, the next analysis takes as long again" in shown.stdout


def test_a_process_that_was_killed_is_one_message() -> None:
    with pytest.raises(AnalysisError, match="one of 2 processes was killed"), each_in(2) as each:
        list(each(os._exit, [9]))


def test_several_processes_find_the_same(campaign: Campaign) -> None:
    with each_in(2) as each:
        value = to_json(aggregate(read_campaign(campaign.root, each=each), each))
    assert value == analysed(campaign)
