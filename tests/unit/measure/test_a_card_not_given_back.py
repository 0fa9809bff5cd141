"""A card whose memory stays in use after the last cell: the start ends, what was measured is kept, and the next start goes on."""

from pathlib import Path

import pytest
from host_faults import DATE, small_campaign

from connector_tax.base.artifacts.receipts import read_receipt
from connector_tax.base.errors import EngineError
from connector_tax.base.files import read_json, write_json
from connector_tax.run.engine import process
from connector_tax.run.engine.gpus import Gpu
from connector_tax.run.measure.run import measure_run

CARD = Gpu(0, "GPU-aa", "NVIDIA H20", 97_871, "GPU-aa")


def test_a_card_that_is_not_given_back_costs_no_finished_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONNECTOR_TAX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(process, "RELEASE_POLL_S", 0.0)
    # The driver alone is a stand-in: the embedded engine has no card.
    used_mib = [9000]
    monkeypatch.setattr(process, "memory_before", lambda _: {CARD: 100})
    monkeypatch.setattr(process, "memory_used_mib", lambda _: used_mib[0])
    folder = small_campaign(tmp_path, rates=(20.0, 40.0), connectors=("plain",))
    run = folder.run(DATE, "plain", "a")
    document = read_json(folder.campaign_file)
    document["config"]["engine"]["release_timeout_s"] = 0.0
    write_json(folder.campaign_file, document)
    with pytest.raises(
        EngineError, match=r"GPU 0: NVIDIA H20 .*: 9000 MiB in use .* 100 MiB before it started"
    ):
        measure_run(folder.campaign_file, "plain", "a")
    kept = {c.path.name: c.cell_json.stat().st_ino for c in run.finished_cells()}
    assert sorted(kept) == ["r20_256x16", "r40_256x16"]
    assert not run.receipt.exists(), "nothing failed: the next start makes the receipt"
    used_mib[0] = 100
    measure_run(folder.campaign_file, "plain", "a")
    assert read_receipt(run).status == "measured"
    assert {c.path.name: c.cell_json.stat().st_ino for c in run.finished_cells()} == kept
