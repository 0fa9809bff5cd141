"""An engine that lives and answers nobody: taken for dead, launched again, and named."""

from pathlib import Path

import pytest
from cell_specs import cell_spec
from host_faults import DATE, ROOT, small_campaign
from made_outcomes import record

from connector_tax.base.artifacts.cells import read_cell
from connector_tax.base.artifacts.receipts import read_receipt
from connector_tax.base.config import load_campaign
from connector_tax.base.files import read_json, write_json
from connector_tax.run.engine.process import LaunchRequest, running_engine
from connector_tax.run.loadgen import outputs
from connector_tax.run.measure import cell
from connector_tax.run.measure.run import measure_run


def test_an_engine_that_hangs_costs_its_cell_two_launches_and_no_other_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hangs at its 14th request: in each launch's first cell of many requests, and never in one of few, which comes after it here."""
    monkeypatch.setenv("CONNECTOR_TAX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cell, "HUNG_AFTER_S", 0.5)
    folder = small_campaign(tmp_path, rates=(60.0, 10.0))
    document = read_json(folder.campaign_file)
    document["config"]["accuracy"]["prompts"] = 0
    document["config"]["engine"]["env"]["CONNECTOR_TAX_FAULT"] = "hang_after:14"
    write_json(folder.campaign_file, document)
    deaths = measure_run(folder.campaign_file, "noop_connector", "a")
    run = folder.run(DATE, "noop_connector", "a")
    assert [d.cell_id for d in deaths] == ["r60_256x16"] * 2
    assert all(
        d.cause.startswith("it hangs: it gave no token within 0.5 s though nobody else asked") for d in deaths
    )
    first, second = (read_cell(run.cell(c)) for c in ("r10_256x16", "r60_256x16"))
    assert first.verdict == "valid"
    assert second.verdict == "invalid" and second.reasons[0].startswith("engine died: it hangs: ")
    assert read_receipt(run).status == "measured"


def test_who_left_nothing_unanswered_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a queue the client gives requests up itself; an engine that answers now was only busy."""
    monkeypatch.setattr(cell, "HUNG_AFTER_S", 0.5)
    campaign = load_campaign(ROOT / "config" / "demo.yaml")

    def said(fault: str, status: str) -> str | None:
        folder = tmp_path / f"{fault} {status}".replace(":", "")
        request = LaunchRequest(campaign.engine, campaign.connector("plain"), folder, fault=fault)
        with running_engine(request) as engine:
            engine.wait_ready()
            return cell.hangs(engine, cell_spec(), [record(0, 0.0, status=status)])

    assert said("hang_after:1", "ok") is None
    for status in ("timeout", "aborted"):
        assert (said("hang_after:1", status) or "").startswith("it hangs: ")
    assert said("", "timeout") is None


def test_an_engine_that_hangs_is_not_waited_for_at_every_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    monkeypatch.setattr(outputs, "TIMEOUT_S", 0.3)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        found = outputs.collect_outputs(
            f"http://127.0.0.1:{silent.getsockname()[1]}",
            "m",
            seed=1,
            prompts=3,
            input_tokens=4,
            output_tokens=2,
            token_ids=(100, 200),
        )
    assert found == [{"error": "no answer within 0.3 s"}, *[{"error": "no answer to an earlier prompt"}] * 2]
