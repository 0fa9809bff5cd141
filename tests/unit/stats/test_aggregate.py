"""A campaign whose truth is known, from its files to every printed number."""

import csv
import io
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from analysed import PLAIN, TAXED, analysed, campaign_of, one, rows
from builders import ROOT, SMALL, Campaign, fail
from invented_server import Behaviour

from connector_tax.base.documents.aggregate import aggregate_of
from connector_tax.base.files import to_json
from connector_tax.read.ingest import CellData, read_campaign
from connector_tax.read.stats.cell_rows import aggregate_csv
from connector_tax.read.stats.cells import estimate_cells, no_kinds
from connector_tax.read.stats.taxes import taxes_of

Aggregate = dict[str, Any]
AT_SAFE = {"reference": "ref_safe", "phase": "a"}


def criteria(value: Aggregate) -> dict[int, str]:
    return {c["number"]: c["outcome"] for c in value["criteria"]}


@pytest.mark.parametrize("metric", ["ttft_p90", "tpot_p90"])
def test_a_tax_that_was_put_in_is_found(value: Aggregate, metric: str) -> None:
    """At both reference rates and every shape; how often the interval holds it is counted below."""
    for config, truth in (("mooncake_both", 0.30), ("nixl_both", 0.20)):
        found = [
            t for t in rows(value, "taxes", config=config, metric=metric) if t["reference"] != "neither"
        ]  # fewer requests
        assert len(found) >= 5
        assert all(abs(t["point"] - truth) < 0.05 for t in found)
        assert all(t["verdict"] == "tax" and t["n"] > 0 and t["n_plain"] > 0 for t in found)
    nothing = rows(value, "taxes", config="noop_connector", metric=metric)
    assert sum(t["verdict"] == "no_tax_found" for t in nothing) >= len(nothing) - 1


def test_step_and_callback_taxes_are_differences_in_microseconds(value: Aggregate) -> None:
    """30 % of a 9 ms step; 100 us of hooks; the rest is not explained by them."""
    step, hooks, rest = (
        one(value, "taxes", config="mooncake_both", metric=metric, **AT_SAFE)
        for metric in ("step_p50_us", "callback_p50_us", "unexplained_us")
    )
    assert step["low"] <= 2700 <= step["high"]
    assert (hooks["low"], hooks["point"], hooks["high"]) == (100, 100, 100)
    assert rest["point"] == pytest.approx(step["point"] - 100)
    assert rest["unit"] == "us"


def test_percentiles_are_numpys(whole: Campaign, value: Aggregate) -> None:
    """From the lines of the file, by hand: requests scheduled in the window."""
    folder = whole.run("plain", "a").cell("r4_256x16")
    window = json.loads(folder.cell_json.read_text())["window"]
    lines = [json.loads(line) for line in folder.requests.read_text().splitlines()]
    lines = [r for r in lines if window["window_start_ns"] <= r["t_sched_ns"] < window["t_stop_ns"]]
    ttft_ms = [(r["t_first_token_ns"] - r["t_sched_ns"]) / 1e6 for r in lines]
    tpot_ms = [(r["t_last_token_ns"] - r["t_first_token_ns"]) / 15e6 for r in lines]
    cell = one(value, "cells", config="plain", phase="a", rate_per_s=4)
    for q in (50, 90, 99):
        assert cell["ttft_ms"][f"p{q}"]["point"] == pytest.approx(np.percentile(ttft_ms, q))
        assert cell["tpot_ms"][f"p{q}"]["point"] == pytest.approx(np.percentile(tpot_ms, q))
    assert cell["n_window"] == len(lines) == 80


def test_every_number_has_an_interval_or_a_reason(value: Aggregate) -> None:
    to_json(value)  # refuses NaN and infinity
    for row in [*value["taxes"], *value["amplification"]]:
        complete = None not in (row["point"], row["low"], row["high"])
        assert complete or row["reason"], row
        assert not complete or row["low"] <= row["point"] <= row["high"]


def test_hypotheses_and_criteria_follow_from_the_truth(value: Aggregate) -> None:
    """Criterion 4 needs a stack that was not measured here, and 7 launches that were timed."""
    h1, h3 = (one(value, "hypotheses", id=h, subject="mooncake_both") for h in ("H1", "H3"))
    assert (h1["outcome"], h1["conclusions"]) == ("supported", ["prior_kept"])
    assert h3["conclusions"] == ["implementation_dominates"]
    h4 = one(value, "hypotheses", id="H4", subject="multi_mooncake_lmcache")
    assert (h4["outcome"], {m["reason"] for m in h4["missing"]}) == ("not testable", {"not_in_campaign"})
    assert criteria(value) == {
        **dict.fromkeys((1, 2, 5), "reported"),
        **dict.fromkeys((3, 6), "met"),
        **dict.fromkeys((4, 7), "undetermined"),
    }
    assert {c["status"] for c in value["configs"].values()} == {"measured"}
    assert value["problems"] == value["observer_effect"] == value["growth"] == []


def test_the_same_input_gives_the_same_bytes(whole: Campaign, value: Aggregate) -> None:
    assert to_json(analysed(whole)) == to_json(value)
    assert str(whole.root) not in to_json(value)


def test_the_csv_has_steps_hooks_and_what_fired(tmp_path: Path) -> None:
    """p50 and p90 of steps and of each hook in microseconds; which criteria of saturation fired, by name."""
    slow = Behaviour(capacity_per_s=3, hooks_us=(5.0, 3.0, 2.0))
    campaign = campaign_of(tmp_path, {"nixl_both": slow})
    for connector in ("plain", "nixl_both"):
        campaign.measure(connector)
    value = analysed(campaign)
    lines = list(csv.DictReader(io.StringIO(aggregate_csv(aggregate_of(value)))))
    assert len(lines) == len(value["cells"])
    by_rate = {(r["config"], float(r["rate_per_s"])): r for r in lines}
    own, cell = by_rate["nixl_both", 4.0], one(value, "cells", config="nixl_both", rate_per_s=4)
    low, p90, high = (float(by_rate["plain", 4.0][f"ttft_p90_{name}ms"]) for name in ("low_", "", "high_"))
    assert low < p90 < high
    assert own["saturation_fired"] == "throughput;waiting;ttft_growth"
    assert by_rate["nixl_both", 2.0]["saturation_fired"] == by_rate["plain", 8.0]["saturation_fired"] == ""
    hooks = {"build_meta": 5, "get_finished": 3, "start_load_kv": 2, "connector_total": 10}
    for q in ("p50", "p90"):
        assert float(own[f"step_duration_{q}_us"]) == cell["step"]["step_duration_us"][q]["point"]
        assert {name: float(own[f"{name}_{q}_us"]) for name in hooks} == pytest.approx(hooks)
    # Samples of a host that tells nothing of itself.
    assert {c["host"] for c in value["cells"]} == {None} and "host" not in own


def test_without_step_timing_everything_else_comes_out(tmp_path: Path) -> None:
    campaign = campaign_of(tmp_path)
    campaign.step_timing = False
    campaign._write_preflight()
    campaign.measure_everything()
    value = analysed(campaign)
    why = {"code": "step_timing_refused", "detail": "the patch does not fit this release"}
    assert (value["step_timing_available"], value["step_timing_reason"]) == (False, why)
    own = {"config": "mooncake_both", **AT_SAFE}
    assert one(value, "taxes", metric="ttft_p90", **own)["verdict"] == "tax"
    step = one(value, "taxes", metric="step_p50_us", **own)
    assert (step["point"], step["reason"]) == (None, "no_steps")
    assert criteria(value)[6] == "met"


def test_a_skipped_configuration_keeps_its_reason_everywhere(tmp_path: Path) -> None:
    campaign = campaign_of(tmp_path)
    campaign.skip("mooncake_both", "no module named mooncake")
    campaign.measure_everything()
    value = analysed(campaign)
    state, why = value["configs"]["mooncake_both"], {"code": "skipped", "detail": "no module named mooncake"}
    assert (state["status"], state["reason"]) == ("skipped", why)
    for name in ("H1", "H2", "H3", "H5", "H6"):
        found = one(value, "hypotheses", id=name, subject="mooncake_both")
        assert found["outcome"] == "not testable"
        assert found["missing"][0] == {"reason": "skipped", "subject": "mooncake_both"}
    assert one(value, "hypotheses", id="H1", subject="nixl_both")["outcome"] != "not testable"
    assert criteria(value)[6] == "met"
    assert "mooncake_both" not in value["reference_rates"]["participating"]


def test_half_a_campaign_is_analysed_as_far_as_it_goes(tmp_path: Path) -> None:
    """Phase A of two configurations, one without a receipt; no reference rates on disk yet."""
    campaign = campaign_of(tmp_path)
    campaign.measure("plain")
    campaign.measure("nixl_both", receipt=False)
    value = analysed(campaign)
    assert value["reference_rates"]["ref_safe_per_s"] == 8
    assert rows(value, "taxes", config="nixl_both", metric="ttft_p90")[0]["verdict"] == "tax"
    words = {k: (v["status"], v["reason"]) for k, v in value["configs"].items()}
    assert words["plain"] == ("partial", {"code": "phase_missing", "subject": "b"})
    assert words["nixl_both"] == ("partial", {"code": "phase_unfinished", "subject": "a"})
    assert words["mooncake_both"] == ("missing", {"code": "not_measured"})
    assert criteria(value)[6] == "not met"


def test_a_campaign_with_nothing_in_it_is_analysed_too(tmp_path: Path) -> None:
    value = analysed(campaign_of(tmp_path))
    assert (value["cells"], value["taxes"], value["reference_rates"]) == ([], [], None)
    assert {h["outcome"] for h in value["hypotheses"]} == {"not testable"}
    assert value["problems"] == [{"code": "no_plain", "subject": "plain"}]
    assert aggregate_csv(aggregate_of(value)).strip() == ""


def test_a_damaged_cell_of_plain_leaves_no_ratio_and_a_reason(copied: Campaign) -> None:
    """X's own numbers stay, its taxes have none."""
    folder = copied.run("plain", "b").cell("r8_64x8")
    folder.requests.write_text(folder.requests.read_text()[:-20])
    value = analysed(copied)
    at = {"config": "nixl_both", "phase": "b", "input_tokens": 64, "output_tokens": 8}
    tax = one(value, "taxes", metric="ttft_p90", **at)
    assert (tax["point"], tax["verdict"]) == (None, "unavailable")
    assert (tax["reason"], tax["subject"]) == ("no_cell", "plain")
    assert one(value, "taxes", metric="callback_p50_us", **at)["point"] == 100
    damaged = one(value, "cells", usable=False)
    assert damaged["reasons"][0]["code"] == "file_changed"
    problem = value["problems"][0]
    assert problem["because"]["code"] == "file_changed"
    assert problem["subject"] == "2026-11-20_plain/phase_b/cells/r8_64x8"
    assert value["configs"]["plain"]["status"] == "partial"
    h5 = one(value, "hypotheses", id="H5", subject="mooncake_both")
    assert h5["numbers"]["averaged_over"] == [16]
    assert h5["numbers"]["left_out"] == {"8": {"64": "no_cell"}}


def test_a_phase_that_is_gone_is_no_measured_configuration(copied: Campaign) -> None:
    """Without its folder nothing else would say that it was to be measured."""
    shutil.rmtree(copied.run("nixl_both", "b").path)
    state = analysed(copied)["configs"]["nixl_both"]
    assert (state["status"], state["reason"]) == ("partial", {"code": "phase_missing", "subject": "b"})


def test_a_percentile_on_failures_is_unavailable_not_flattering(tmp_path: Path) -> None:
    """One of six requests failed: p50 stands, p90 does not, and neither does its tax."""
    campaign = campaign_of(tmp_path)
    campaign.measure("plain")
    campaign.measure("nixl_both", change=fail(every=6))
    value = analysed(campaign)
    cell = one(value, "cells", config="nixl_both", rate_per_s=4)
    assert cell["ttft_ms"]["p50"]["point"] is not None
    none = dict.fromkeys(("point", "low", "high"))
    assert cell["ttft_ms"]["p90"] == {**none, "n": 80, "reason": "requests_failed"}
    assert cell["n_ok"] + cell["n_failed"] == cell["n_window"] == 80
    found = rows(value, "taxes", config="nixl_both", metric="ttft_p90")
    assert found
    assert all(t["verdict"] == "unavailable" and t["reason"] for t in found)


def test_rates_that_no_longer_follow_from_phase_a_are_said(copied: Campaign) -> None:
    """The file stands, since Phase B was measured at it."""
    path = copied.folder.reference_rates
    path.write_text(path.read_text().replace('"ref_safe_per_s": 8.0', '"ref_safe_per_s": 4.0'))
    value = analysed(copied)
    assert value["reference_rates"]["ref_safe_per_s"] == 4
    problem = one(value, "problems", code="rates_changed", subject="reference_rates.json")
    assert problem["numbers"] == {"safe": 8.0, "load": 8.0}


def test_a_missing_file_or_receipt_fails_criterion_six(copied: Campaign) -> None:
    (copied.run("plain", "a").path / "env.txt").unlink()
    copied.run("nixl_both", "b").cell("r8_64x8").metrics.unlink()
    copied.folder.preflight_status.unlink()
    sixth = analysed(copied)["criteria"][5]
    assert sixth["outcome"] == "not met"
    missing = ("nixl_both/b/metrics_B_r8_64x8.jsonl", "plain/a/env.txt", "preflight_status.json")
    found = sorted((e["code"], e["subject"]) for e in sixth["evidence"])
    assert found == [("file_missing", subject) for subject in missing]


def test_intervals_hold_the_truth_about_as_often_as_promised(tmp_path: Path) -> None:
    """From files to interval, 24 pairs of cells each: a tax of 30 %, and none at all.

    Of 48 intervals that each hold the truth in 95 of 100 cases, 9 or more miss once in a thousand times.
    """
    truths = {"mooncake_both": 0.30, "nixl_both": 0.0}
    campaign = campaign_of(tmp_path, {"mooncake_both": Behaviour().taxed(0.3)})
    campaign.step_timing = False
    missed = {"ttft_p90": 0, "tpot_p90": 0}
    called = 0
    for seed in range(8):
        campaign.seed = seed
        for connector in ("plain", *truths):
            campaign.measure(connector)
        cells = read_campaign(campaign.root, steps=False).cells()
        found = {
            (e.cell.config, e.cell.cell_id): e for e in estimate_cells(cells, seed, 300, confidence=0.95)
        }
        for (config, cell_id), own in found.items():
            for tax in taxes_of(own, found["plain", cell_id], "ref_safe") if config in truths else []:
                if tax.metric in missed:
                    low, high = tax.estimate.interval(0.95)
                    missed[tax.metric] += not low <= truths[config] <= high
                    called += config == "nixl_both" and tax.row(0.95).verdict != "no_tax_found"
    assert max(missed.values()) < 9, missed
    assert called < 6


def test_a_cell_is_as_uncertain_as_cells_of_its_load_are(tmp_path: Path) -> None:
    """Plain happened to be calm; two connectors queue at 4 requests/s, and their blocks are plain's as well."""
    queueing = Behaviour(capacity_per_s=3.9)
    calm = campaign_of(tmp_path, {"mooncake_both": queueing, "nixl_both": queueing})
    for connector in ("plain", "mooncake_both", "nixl_both"):
        calm.measure(connector)
    cells = [c for c in read_campaign(calm.root, steps=False).cells() if c.spec.rate_per_s == 4]
    plain = [c for c in cells if c.config == "plain"]

    def width(among: list[CellData]) -> float:
        own = next(e for e in estimate_cells(among, 1, 300, confidence=0.95) if e.cell.config == "plain")
        low, high = own.latency("ttft_ms", 50.0).interval(0.95)
        return high - low

    assert width(cells) > 1.1 * width(plain)


@pytest.mark.parametrize("script", ["analyze.py", "select_reference_rates.py"])
def test_a_door_writes_once_and_says_where_there_is_no_campaign(
    copied: Campaign, tmp_path: Path, script: str
) -> None:
    command = [sys.executable, str(ROOT / "scripts" / script), "--root"]
    target = copied.folder.aggregate if script == "analyze.py" else copied.folder.reference_rates
    subprocess.run([*command, copied.root], check=True, capture_output=True)
    before = target.stat().st_mtime_ns
    subprocess.run([*command, copied.root], check=True, capture_output=True)
    assert target.stat().st_mtime_ns == before
    done = subprocess.run([*command, tmp_path], capture_output=True, text=True)
    assert done.returncode == 2
    assert "no such file" in done.stderr
    assert "Traceback" not in done.stderr


def test_steps_of_few_requests_at_random_arrivals_have_no_interval_by_kind(tmp_path: Path) -> None:
    """They are of one or two busy periods."""
    for arrival, requests, known in (("poisson", 69, False), ("poisson", 70, True), ("fixed", 69, True)):
        assert (no_kinds(arrival, requests) is None) is known
    few = {"duration_s": 2, "min_completed": 8, "max_cell_s": 4, "arrival": "poisson"}
    campaign = campaign_of(tmp_path, cell={**SMALL["cell"], **few})
    campaign.measure("plain")
    for found in estimate_cells(read_campaign(campaign.root).cells(), 1, 300, confidence=0.95):
        kinds = found.steps.document.by_kind
        quantities = [q for kind in (kinds.decode_only, kinds.mixed) for q in (kind.p50, kind.p90)]
        assert {q.reason for q in quantities} == {"few_at_random"}
        assert found.step("step_duration_us", 50.0).point is not None


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> Aggregate:
    """Recording makes plain 5 % slower and the connector, which has hooks, 20 %; the connector itself costs 30 %."""
    behaviours = {
        "plain": PLAIN.taxed(0.05),
        "plain unrecorded": PLAIN,
        "mooncake_both": PLAIN.taxed(0.56),
        "mooncake_both unrecorded": TAXED["mooncake_both"],
    }
    campaign = campaign_of(tmp_path_factory.mktemp("observed"), behaviours, observer_effect=True)
    campaign.measure_everything()
    return analysed(campaign)


@pytest.mark.parametrize("metric", ["ttft_p50", "tpot_p90"])
def test_the_recorders_cost_is_found(observed: Aggregate, metric: str) -> None:
    for config, effect in (("plain", 0.05), ("mooncake_both", 0.20)):
        found = one(observed, "observer_effect", config=config, metric=metric)["effect"]
        assert found["point"] == pytest.approx(effect, abs=0.03)
        assert found["low"] < found["point"] < found["high"]


def test_the_tax_without_the_recorder_stands_beside_the_one_with_it_and_nowhere_else(
    observed: Aggregate,
) -> None:
    """A second cell of one shape would count twice in every mean over shapes."""
    found = one(observed, "observer_effect", config="mooncake_both", metric="tpot_p90")
    assert found["tax"]["point"] == pytest.approx(1.56 / 1.05 - 1, abs=0.04)
    assert found["tax_unrecorded"]["point"] == pytest.approx(0.30, abs=0.04)
    assert one(observed, "observer_effect", config="plain", metric="tpot_p90")["tax"] is None
    assert not any("unrecorded" in t["cell_id"] for t in observed["taxes"])
    assert any("unrecorded" in c["cell_id"] for c in observed["cells"])
    assert not any("unrecorded" in str(p) for p in observed["problems"])
