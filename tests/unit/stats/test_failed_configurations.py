"""A configuration that failed has a reason wherever its numbers would be, and no say in those of the others."""

import json
import shutil
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from analysed import analysed, campaign_of, one, rows
from builders import ROOT, Campaign
from invented_server import Behaviour
from msgspec.structs import replace

from connector_tax.base.artifacts.receipts import write_receipt
from connector_tax.base.errors import AnalysisError
from connector_tax.base.files import write_json
from connector_tax.base.plan import read_campaign_file
from connector_tax.read.ingest import read_campaign
from connector_tax.read.report.manifest import manifest_rows
from connector_tax.read.report.status import status_text
from connector_tax.read.stats.reference import select_reference_rates

SCHEMA = json.loads((ROOT / "workflow/schemas/aggregate.schema.json").read_text())
CAUSE = "did not launch in 2 tries in a row: OSError: libibverbs.so.1"


def end_run(campaign: Campaign, connector: str, phase: str, *, keep: int = 0, status: str = "failed") -> None:
    """A receipt of a run that was not measured to its end, with the first cells that were finished before."""
    run = campaign.run(connector, phase)  # type: ignore[arg-type]
    cells = run.finished_cells()
    reason = CAUSE if status == "failed" else f"failed in phase A: {CAUSE}"
    kept = [c.cell_id for c in cells[:keep]]
    write_receipt(run, campaign=campaign.config.campaign, status=status, reason=reason, cell_ids=kept)  # type: ignore[arg-type]
    for cell in cells[keep:]:
        shutil.rmtree(cell.path)


def valid(campaign: Campaign) -> dict[str, Any]:
    value = analysed(campaign)
    jsonschema.Draft202012Validator(SCHEMA).validate(value)
    return value


def missing(value: dict[str, Any], subject: str) -> list[list[str]]:
    """Of each hypothesis about it why it is not testable."""
    return [[m["reason"] for m in h["missing"]] for h in rows(value, "hypotheses", subject=subject)]


def ended(phase: str) -> dict[str, str]:
    return {"code": "phase_failed", "subject": phase, "detail": CAUSE}


def test_who_failed_in_phase_a_has_no_say_in_the_reference_rates(tmp_path: Path) -> None:
    """Its lowest rate was measured and saturated; the others' rates do not follow it."""
    campaign = campaign_of(tmp_path, {"nixl_both": Behaviour(capacity_per_s=1)})
    for connector in campaign.config.connector_ids:
        campaign.measure(connector)
    end_run(campaign, "nixl_both", "a", keep=1)
    found = select_reference_rates(read_campaign(campaign.root, phases=("a",), steps=False))
    assert found.participating == ("plain", "noop_connector", "mooncake_both")
    assert (found.ref_safe_per_s, found.flags) == (8, ())


def test_a_failure_in_phase_a_is_named_wherever_a_number_is_missed(copied: Campaign) -> None:
    end_run(copied, "mooncake_both", "a")
    for phase in ("b", "b_prime"):
        end_run(copied, "mooncake_both", phase, status="skipped")
    value = valid(copied)
    state = value["configs"]["mooncake_both"]
    assert (state["status"], state["reason"]) == ("failed", ended("a"))
    assert missing(value, "mooncake_both") == [["phase_failed"]] * 5
    # The run that failed, once; those that were spared because of it are no news. These rates are from before it failed.
    assert [p["subject"] for p in value["problems"]] == [
        "2026-11-20_mooncake_both/phase_a",
        "reference_rates.json",
    ]
    sixth = one(value, "criteria", number=6)
    assert sixth["outcome"] == "met", sixth
    (evidence,) = sixth["evidence"]
    assert evidence["code"] == "runs_checked" and evidence["numbers"]["failed"] == 1
    document = read_campaign_file(copied.folder.campaign_file)
    (row,) = [
        r
        for r in manifest_rows(copied.folder, document, copied.root)
        if (r["config"], r["phase"]) == ("mooncake_both", "A")
    ]
    assert (row["status"], row["reason"], row["step_timing_available"]) == ("failed", CAUSE, "-")
    config = replace(copied.config, campaign=copied.root.name)
    text = status_text(config, copied.root, "connector-tax run demo")
    assert f"failed mooncake_both in phase A: {CAUSE}" in text


def test_a_failure_in_phase_b_keeps_phase_a(copied: Campaign) -> None:
    """The headline stands, trends over length say why they cannot be asked, and finished cells count."""
    end_run(copied, "mooncake_both", "b", keep=1)
    value = valid(copied)
    state = value["configs"]["mooncake_both"]
    assert (state["status"], state["reason"]) == ("partial", ended("b"))
    outcomes = {h["id"]: h["outcome"] for h in rows(value, "hypotheses", subject="mooncake_both")}
    assert outcomes["H1"] != "not testable"
    assert (outcomes["H5"], outcomes["H6"]) == ("not testable", "not testable")
    lost = rows(value, "taxes", config="mooncake_both", phase="b", metric="ttft_p90")
    assert [t["point"] is not None for t in lost] == [True, False, False, False]
    assert {t["reason"] for t in lost} == {None, "phase_failed"}


def test_cells_that_are_all_invalid_say_why_there_is_no_usable_one(copied: Campaign) -> None:
    reason = "not answered: 40 of 40 requests failed, the first as http_error"
    for phase in ("a", "b"):
        copied.measure("nixl_both", phase, rates=(8.0, 8.0), verdict="invalid", reasons=[reason])  # type: ignore[arg-type]
    value = valid(copied)
    state = value["configs"]["nixl_both"]
    invalid = {"code": "invalid", "detail": reason}
    assert (state["status"], state["reason"]) == ("failed", {"code": "no_usable_cell", "because": invalid})
    assert ["no_usable_cell"] in missing(value, "mooncake_both")


def test_a_connector_that_fakes_hits_or_copies_kv_has_the_taxes_that_it_can_have(tmp_path: Path) -> None:
    """All but TTFT of the one; LMCache's copy is what switching it on costs as shipped: a tax, and marked."""
    campaign = campaign_of(
        tmp_path,
        connectors=["plain", "decode_bench", "lmcache_only"],
        phase_b_prime={"configs": [], "shapes": []},
        repeats=1,
    )
    campaign.measure_everything()
    value = valid(campaign)
    faked = rows(value, "taxes", config="decode_bench")
    assert all(t["point"] is not None for t in faked if t["metric"] == "tpot_p90")
    assert {t["reason"] for t in faked if t["metric"] == "ttft_p90"} == {"ttft_excluded"}
    blocks = {(e["metric"], t["config"]) for e in value["repeats"] for t in e["taxes"]}
    assert ("tpot_p90", "decode_bench") in blocks and ("ttft_p90", "decode_bench") not in blocks
    of_ttft = [h["missing"] for h in rows(value, "hypotheses", subject="decode_bench") if h["id"] != "H6"]
    assert of_ttft and all(m[0]["reason"] == "ttft_excluded" for m in of_ttft)
    for metric, known in (("ttft_p90", False), ("tpot_p90", True)):
        total = one(value, "decomposition", config="decode_bench", metric=metric)["total"]
        assert (total["point"] is not None) is known
    own = rows(value, "taxes", config="lmcache_only", metric="ttft_p90")
    assert own and all(t["point"] is not None for t in own)
    assert value["configs"]["lmcache_only"]["copies_kv"] == "host memory (LMCache's CPU store)"


def remove(campaign: Campaign, *connectors: str) -> None:
    """All of their runs, as if they had never been launched."""
    for path in [p for c in connectors for p in campaign.root.glob(f"*_{c}")]:
        shutil.rmtree(path)


def test_without_plain_the_file_of_rates_is_said_to_be_used_and_no_other_is_made(copied: Campaign) -> None:
    remove(copied, "plain")
    value = analysed(copied)
    assert value["reference_rates"]["ref_safe_per_s"] == 8
    assert [p["code"] for p in rows(value, "problems", subject="reference_rates.json")] == ["rates_kept"]
    assert rows(value, "problems", code="no_plain") == []
    with pytest.raises(AnalysisError, match=r"no reference rate\. Remove bad cells .* start the campaign"):
        select_reference_rates(read_campaign(copied.root))


def test_rates_that_were_worked_out_anew_are_a_problem(copied: Campaign) -> None:
    """The page would be that of a sound campaign otherwise."""
    copied.folder.reference_rates.unlink()
    value = analysed(copied)
    (problem,) = value["problems"]
    assert problem == {"code": "rates_remade", "subject": "reference_rates.json"}
    sixth = one(value, "criteria", number=6)
    assert sixth["outcome"] == "not met"
    assert {"code": "file_missing", "subject": "reference_rates.json"} in sixth["evidence"]


def test_without_a_cell_step_timing_is_not_said_to_be_off(value: dict[str, Any], copied: Campaign) -> None:
    assert value["step_timing_reason"] is None
    remove(copied, *copied.config.connector_ids)
    found = analysed(copied)
    assert found["step_timing_available"] is False
    assert found["step_timing_reason"] == {"code": "no_usable_cell"}


def answer(campaign: Campaign, *launches: tuple[str, str, int]) -> None:
    for connector, phase, token in launches:
        outputs = [{"token_ids": [1]}, {"token_ids": [token]}]
        document = {"campaign": campaign.config.campaign, "connector": connector, "outputs": outputs}
        write_json(campaign.run(connector, phase).outputs, document)  # type: ignore[arg-type]


def test_a_configuration_that_computes_something_else_has_no_tax_anywhere(tmp_path: Path) -> None:
    """In one launch is enough, also over blocks; its levels and its hooks' cells stay."""
    campaign = campaign_of(tmp_path, repeats=1, observer_effect=True)
    campaign.measure_everything()
    before = analysed(campaign)
    assert {t["config"] for e in before["repeats"] for t in e["taxes"]} >= {"nixl_both"}
    answer(campaign, ("plain", "a", 1), ("nixl_both", "a", 1), ("nixl_both", "b", 2))
    value, why = analysed(campaign), "answers_differ"
    for table in ("taxes", "main_taxes"):
        own = rows(value, table, config="nixl_both")
        assert own and {(t["point"], t["verdict"], t["reason"]) for t in own} == {(None, "unavailable", why)}
    assert {d["total"]["reason"] for d in rows(value, "decomposition", config="nixl_both")} == {why}
    for table in ("attribution", "two_parts"):
        assert rows(before, table, config="nixl_both") and not rows(value, table, config="nixl_both")
    h2 = one(value, "hypotheses", id="H2")
    assert (h2["outcome"], h2["missing"][0]["reason"]) == ("not testable", why)
    assert one(value, "criteria", number=2)["outcome"] == "not met"
    assert rows(value, "cells", config="nixl_both", usable=True)
    assert rows(value, "main_taxes", config="mooncake_both", metric="ttft_p90")[0]["point"] is not None
    assert value["repeats"]
    assert "nixl_both" not in {t["config"] for e in value["repeats"] for t in e["taxes"]}
    observed = rows(value, "observer_effect", config="nixl_both")
    assert observed
    assert all(r["tax"]["point"] is None and r["effect"]["point"] is not None for r in observed)
