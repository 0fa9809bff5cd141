"""A configuration that failed has a reason wherever its numbers would be, and no say in those of the others."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from analysed import aggregate_json
from builders import ROOT, SMALL, Campaign, campaign_config
from invented_server import Behaviour
from msgspec.structs import replace

from connector_tax.base.artifacts.receipts import write_receipt
from connector_tax.base.plan import read_campaign_file
from connector_tax.read.ingest import read_campaign
from connector_tax.read.report.manifest import manifest_rows
from connector_tax.read.report.status import status_text
from connector_tax.read.stats.reference import select_reference_rates

SCHEMA = json.loads((ROOT / "workflow/schemas/aggregate.schema.json").read_text())
CAUSE = "did not launch in 2 tries in a row: OSError: libibverbs.so.1"


def fail_run(campaign: Campaign, connector: str, phase: str, keep: int = 0) -> None:
    """A ``failed`` receipt, with the first cells that were finished before."""
    run = campaign.run(connector, phase)
    cells = [c.cell_id for c in run.finished_cells()][:keep]
    write_receipt(run, campaign=campaign.config.campaign, status="failed", reason=CAUSE, cell_ids=cells)
    for cell in run.finished_cells()[keep:]:
        for path in cell.path.iterdir():
            path.unlink()
        cell.path.rmdir()


def spare(campaign: Campaign, connector: str, *phases: str) -> None:
    for phase in phases:
        run = campaign.run(connector, phase)
        reason = f"failed in phase A: {CAUSE}"
        write_receipt(run, campaign=campaign.config.campaign, status="skipped", reason=reason)
        for cell in run.finished_cells():
            for path in cell.path.iterdir():
                path.unlink()
            cell.path.rmdir()


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    made = Campaign(tmp_path / "demo", campaign_config(**SMALL), step_timing=False)
    made.measure_everything()
    return made


def analysed(campaign: Campaign) -> dict[str, Any]:
    value = aggregate_json(read_campaign(campaign.root))
    jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(json.dumps(value)))
    return value


def missing(value: dict[str, Any], subject: str) -> list[list[str]]:
    """Of each hypothesis about it why it is not testable."""
    return [[m["reason"] for m in h["missing"]] for h in value["hypotheses"] if h["subject"] == subject]


def ended(phase: str) -> dict[str, str]:
    return {"code": "phase_failed", "subject": phase, "detail": CAUSE}


def test_who_failed_in_phase_a_has_no_say_in_the_reference_rates(tmp_path: Path) -> None:
    """Its lowest rate was measured and saturated; the others' rates do not follow it."""
    slow = {"nixl_both": Behaviour(capacity_per_s=1)}
    campaign = Campaign(tmp_path / "demo", campaign_config(**SMALL), slow, step_timing=False)
    for connector in campaign.config.connector_ids:
        campaign.measure(connector, "a")
    fail_run(campaign, "nixl_both", "a", keep=1)
    found = select_reference_rates(read_campaign(campaign.root, phases=("a",), steps=False))
    assert found.participating == ("plain", "noop_connector", "mooncake_both")
    assert (found.ref_safe_per_s, found.flags) == (8, ())


def test_a_failure_in_phase_a_is_named_wherever_a_number_is_missed(campaign: Campaign) -> None:
    fail_run(campaign, "mooncake_both", "a")
    spare(campaign, "mooncake_both", "b", "b_prime")
    value = analysed(campaign)
    state = value["configs"]["mooncake_both"]
    assert (state["status"], state["reason"]) == ("failed", ended("a"))
    assert missing(value, "mooncake_both") == [["phase_failed"]] * 5
    # The run that failed, once; those that were spared because of it are no news. These rates are from before it failed.
    assert [p["subject"] for p in value["problems"]] == [
        "2026-11-20_mooncake_both/phase_a",
        "reference_rates.json",
    ]
    criterion = next(c for c in value["criteria"] if c["number"] == 6)
    assert criterion["outcome"] == "met", criterion
    (evidence,) = criterion["evidence"]
    assert evidence["code"] == "runs_checked" and evidence["numbers"]["failed"] == 1


@pytest.mark.parametrize("name", ["preflight_status", "reference_rates"])
def test_a_campaign_that_lacks_a_file_of_its_own_has_not_all_artifacts(name: str, campaign: Campaign) -> None:
    path = getattr(campaign.folder, name)
    assert path.is_file()
    path.unlink()
    criterion = next(c for c in analysed(campaign)["criteria"] if c["number"] == 6)
    assert criterion["outcome"] == "not met"
    assert {"code": "file_missing", "subject": f"{name}.json"} in criterion["evidence"]


def test_a_failure_in_phase_b_keeps_phase_a(campaign: Campaign) -> None:
    """The headline stands, trends over length say why they cannot be asked, and finished cells count."""
    fail_run(campaign, "mooncake_both", "b", keep=1)
    value = analysed(campaign)
    state = value["configs"]["mooncake_both"]
    assert (state["status"], state["reason"]) == ("partial", ended("b"))
    outcomes = {h["id"]: h["outcome"] for h in value["hypotheses"] if h["subject"] == "mooncake_both"}
    assert outcomes["H1"] != "not testable"
    assert (outcomes["H5"], outcomes["H6"]) == ("not testable", "not testable")
    lost = [t for t in value["taxes"] if (t["config"], t["phase"]) == ("mooncake_both", "b")]
    assert [t["point"] is not None for t in lost if t["metric"] == "ttft_p90"] == [True, False, False, False]
    assert {t["reason"] for t in lost if t["metric"] == "ttft_p90"} == {None, "phase_failed"}


def test_cells_that_are_all_invalid_say_why_there_is_no_usable_one(campaign: Campaign) -> None:
    reason = "not answered: 40 of 40 requests failed, the first as http_error"
    for phase in ("a", "b"):
        campaign.measure("nixl_both", phase, rates=(8.0, 8.0), verdict="invalid", reasons=[reason])
    value = analysed(campaign)
    state = value["configs"]["nixl_both"]
    invalid = {"code": "invalid", "detail": reason}
    assert (state["status"], state["reason"]) == ("failed", {"code": "no_usable_cell", "because": invalid})
    assert ["no_usable_cell"] in missing(value, "mooncake_both")


def test_manifest_and_status_call_it_failed(campaign: Campaign) -> None:
    fail_run(campaign, "mooncake_both", "a")
    document = read_campaign_file(campaign.folder.campaign_file)
    rows = {(r["config"], r["phase"]): r for r in manifest_rows(campaign.folder, document, campaign.root)}
    row = rows["mooncake_both", "A"]
    assert (row["status"], row["reason"], row["step_timing_available"]) == ("failed", CAUSE, "-")
    config = replace(campaign.config, campaign=campaign.root.name)
    text = status_text(config, campaign.root, "connector-tax run demo")
    line = next(x for x in text.splitlines() if x.startswith("mooncake_both"))
    assert line.split()[1] == "failed"
    assert f"failed mooncake_both in phase A: {CAUSE}" in text


def test_a_connector_that_fakes_hits_has_taxes_of_everything_but_ttft(tmp_path: Path) -> None:
    sections = {
        **SMALL,
        "connectors": ["plain", "decode_bench", "example_connector"],
        "phase_b_prime": {"configs": [], "shapes": []},
        "repeats": 3,
    }
    campaign = Campaign(tmp_path / "demo", campaign_config(**sections), step_timing=False)
    campaign.measure_everything()
    value = analysed(campaign)
    faked = [t for t in value["taxes"] if t["config"] == "decode_bench"]
    assert all(t["point"] is not None for t in faked if t["metric"] == "tpot_p90")
    assert {t["reason"] for t in faked if t["metric"] == "ttft_p90"} == {"ttft_excluded"}
    blocks = {(e["metric"], t["config"]) for e in value["repeats"] for t in e["taxes"]}
    assert ("tpot_p90", "decode_bench") in blocks and ("ttft_p90", "decode_bench") not in blocks
    of_ttft = [
        h["missing"] for h in value["hypotheses"] if h["subject"] == "decode_bench" and h["id"] != "H6"
    ]
    assert of_ttft and all(m[0]["reason"] == "ttft_excluded" for m in of_ttft)
    parts = {(d["config"], d["metric"]): d["total"] for d in value["decomposition"]}
    assert parts["decode_bench", "ttft_p90"]["point"] is None
    assert parts["decode_bench", "tpot_p90"]["point"] is not None


def test_a_connector_that_copies_kv_says_so_beside_each_tax(tmp_path: Path) -> None:
    """LMCache's copy is what switching it on costs as shipped: a tax, and marked."""
    connectors = ["plain", "lmcache_only"]
    sections = {**SMALL, "connectors": connectors, "phase_b_prime": {"configs": [], "shapes": []}}
    campaign = Campaign(tmp_path / "demo", campaign_config(**sections), step_timing=False)
    campaign.measure_everything()
    value = analysed(campaign)
    own = [t for t in value["taxes"] if t["metric"] == "ttft_p90"]
    assert own and all(t["point"] is not None for t in own)
    assert value["configs"]["lmcache_only"]["copies_kv"] == "host memory (LMCache's CPU store)"
