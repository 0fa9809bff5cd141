"""Verdicts say no more than the intervals hold."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made import GIVEN, QUIET, measured

from connector_tax.base.documents.check import Died, Judged
from connector_tax.base.files import to_json
from connector_tax.base.statistics.bootstrap import Estimate, unavailable
from connector_tax.check.document import check_document
from connector_tax.check.findings import Findings, read_findings
from connector_tax.check.load_tax import LoadTax
from connector_tax.check.text import check_text
from connector_tax.check.verdict import (
    ABOVE,
    FINE,
    NOT_JUDGED,
    floor_over_loads,
    judge,
    judged_words,
    looked_at,
    noise_floor,
    verdict,
)
from connector_tax.read.stats.taxes import LATENCIES

FIVE_PERCENT = QUIET.taxed(0.05)


@pytest.fixture(scope="module")
def alike(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    return read_findings(measured(tmp_path_factory.mktemp("alike")), {})


@pytest.fixture(scope="module")
def taxed(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    return read_findings(measured(tmp_path_factory.mktemp("taxed"), own=FIVE_PERCENT), {})


def test_a_connector_like_plain_has_no_tax_found_and_how_much_would_fit(alike: Findings) -> None:
    found = verdict(alike, 0.02)
    assert found.exit_code == FINE
    assert "no tax found, of one launch, none shown to be above 2 %" in found.line
    assert "leave room up to" in found.line


def test_a_tax_is_found_at_its_size_and_fails_above_a_lower_limit(taxed: Findings) -> None:
    found = verdict(taxed, 0.02)
    assert found.exit_code == ABOVE
    assert "above 2 %, of one launch" in found.line
    largest = max(j.point for mode in taxed.modes for j in judge(mode))
    assert largest == pytest.approx(0.05, abs=0.005)


def test_a_tax_below_the_limit_is_said_and_passes(taxed: Findings) -> None:
    found = verdict(taxed, 0.1)
    assert found.exit_code == FINE
    assert "a tax, of one launch, none shown to be above 10 %; the largest: T" in found.line
    assert verdict(taxed, None).exit_code == FINE


def test_a_difference_that_plain_has_from_itself_is_no_tax(tmp_path: Path) -> None:
    """The requests of one launch know it to a thousandth; launches differ by six times as much."""
    findings = read_findings(measured(tmp_path, own=FIVE_PERCENT, again=QUIET.taxed(0.06)), {})
    assert noise_floor(findings.modes[0].taxes, "tpot_p90") == pytest.approx(0.06, abs=0.005)
    assert not any(j.told_apart for mode in findings.modes for j in judge(mode))
    found = verdict(findings, None)
    assert found.exit_code == FINE and "no tax found" in found.line


def test_a_host_that_cannot_tell_the_limit_from_nothing_judges_nothing(tmp_path: Path) -> None:
    findings = read_findings(measured(tmp_path, again=QUIET.taxed(0.06)), {})
    found = verdict(findings, 0.02)
    assert found.exit_code == NOT_JUDGED
    assert "a tax of 2 % is not told from none; the best known: T" in found.line


def test_a_latency_that_does_not_decide_withholds_no_verdict(tmp_path: Path) -> None:
    """Plain's TTFT differs by 6 % from itself and its TPOT does not."""
    noisy = replace(QUIET, ttft_ms=1.06 * QUIET.ttft_ms)
    findings = read_findings(measured(tmp_path, again=noisy), {})
    assert verdict(findings, 0.02).exit_code == NOT_JUDGED
    found = verdict(findings, 0.02, ("tpot_p90",))
    assert found.exit_code == FINE and "no tax of TPOT p90 found" in found.line
    both = verdict(findings, 0.02, ("tpot_p50", "tpot_p90"))
    assert both.exit_code == FINE and "no tax of TPOT p50 and TPOT p90 found" in both.line
    document = check_document(findings, found, 0.02, 1.0, deciding=("tpot_p90",))
    assert document.deciding == ("tpot_p90",)
    assert {j.metric for j in document.modes["async"].judged} == {"tpot_p90"}


def test_a_connector_that_does_not_serve_is_not_judged(alike: Findings) -> None:
    modes = (
        alike.modes[0],
        replace(alike.modes[1], failure="did not launch in 2 tries in a row: no such class"),
    )
    found = verdict(replace(alike, modes=modes), None)
    assert found.exit_code == NOT_JUDGED
    assert "does not serve with synchronous scheduling: did not launch" in found.line


def test_an_invalid_cell_is_named_and_nothing_is_judged(tmp_path: Path) -> None:
    spoilt = {"verdict": "invalid", "reasons": ["the virtual GPU's clock ran late"]}
    findings = read_findings(measured(tmp_path, documents={GIVEN: spoilt}), {})
    found = verdict(findings, None)
    assert found.exit_code == NOT_JUDGED
    assert "clock ran late" in found.line
    assert "cell lost: checked" in check_text(findings, found, explain=False)


def test_the_tax_is_taken_of_plains_mean_so_that_drift_is_none(tmp_path: Path) -> None:
    """The connector is served between plain's two launches, and the host gets slower all the time: by 2 % each."""
    findings = read_findings(measured(tmp_path, own=QUIET.taxed(0.02), again=QUIET.taxed(0.0404)), {})
    points = [t.own.point for m in findings.modes for t in m.taxes if t.metric == "tpot_p50"]
    assert points == [pytest.approx(0.0, abs=0.001)] * 6


def test_the_more_taxes_are_looked_at_the_wider_is_each_interval(taxed: Findings) -> None:
    """So that all of them are wrong together no more often than one may be."""
    assert looked_at(taxed) == 8 and looked_at(taxed, ("tpot_p90",)) == 2
    alone, among = (judge(taxed.modes[0], looks) for looks in (1, 8))
    assert all(b.low < a.low and b.high > a.high for a, b in zip(alone, among, strict=True))
    document = check_document(taxed, verdict(taxed, None), None, 1.0)
    assert [j.low for j in document.modes["async"].judged] == [j.low for j in among]


def test_over_three_blocks_the_intervals_hold_what_launches_differ_by(tmp_path: Path) -> None:
    findings = read_findings(measured(tmp_path, own=FIVE_PERCENT, blocks=3, modes=("async",)), {})
    judged = judge(findings.modes[0])
    assert {j.kind for j in judged} == {"over 3 blocks"}
    assert {j.metric for j in judged} == set(LATENCIES)
    assert "over 3 blocks" in verdict(findings, None).line
    # Eight taxes decide: by Student's t of two degrees of freedom, 12.59 in place of 4.30.
    (block,) = {
        b
        for b in findings.modes[0].over_blocks
        if (b.rate_per_s, b.metric) == (judged[0].rates_per_s[0], judged[0].metric)
    }
    assert looked_at(findings) == 8
    among = judge(findings.modes[0], 8)[0]
    wider = (np.log1p(among.point) - np.log1p(among.low)) / (np.log1p(block.point) - np.log1p(block.low))
    assert wider == pytest.approx(12.59 / 4.30, rel=0.01)


def test_what_is_printed_ends_with_the_verdict_and_begins_with_what_a_clock_cannot_show(
    taxed: Findings,
) -> None:
    found = verdict(taxed, 0.02)
    lines = check_text(taxed, found, explain=True).splitlines()
    assert lines[1].startswith("The device is a clock")
    assert lines[-1] == found.line
    assert sum(line.startswith("==") for line in lines) == 2
    assert any("plain against itself" in line for line in lines)


def test_the_json_has_what_the_text_has(taxed: Findings) -> None:
    found = verdict(taxed, 0.02)
    value = json.loads(to_json(check_document(taxed, found, 0.02, 200.0)))
    assert (value["verdict"], value["exit_code"]) == (found.line, ABOVE)
    assert set(value["modes"]) == {"async", "sync"}
    taxes = value["modes"]["async"]["taxes"]
    assert len(taxes) == 12
    assert {"point", "low", "high", "n"} <= set(taxes[0]["tax"])
    assert value["modes"]["sync"]["requests"]["sent"] > 0


@pytest.mark.parametrize(
    ("config", "line"),
    [
        (GIVEN, "NoOpConnector died while it served 2 times, the first time: killed by SIGSEGV"),
        (
            "plain_again",
            "NoOpConnector: not judged: plain vLLM died while it served 2 times, the first time: killed",
        ),
    ],
)
def test_whose_engine_died_while_it_served_passes_nothing(alike: Findings, config: str, line: str) -> None:
    """Launched again, it answered everything."""
    died = (
        Died(config, "a", "r10_256x16", "killed by SIGSEGV"),
        Died(config, "d", "c2_1024x32", "killed by SIGABRT"),
    )
    findings = replace(alike, modes=(alike.modes[0], replace(alike.modes[1], deaths=died)))
    found = verdict(findings, 0.02)
    assert found.exit_code == NOT_JUDGED and found.line.startswith(line)
    mode = check_document(findings, found, 0.02, 200.0).modes["sync"]
    assert mode.serves is (config != GIVEN)
    assert [d.cause for d in mode.deaths] == ["killed by SIGSEGV", "killed by SIGABRT"]
    assert "died while it served 2 times" in check_text(findings, found, explain=False).rpartition("\n")[0]


def test_a_median_tells_a_tax_that_the_tails_do_not(tmp_path: Path) -> None:
    """Requests of plain's second launch spread by 2 %: their tail lies 2.6 % above the first's, their median does not."""
    spread = replace(QUIET, noise=0.02)
    findings = read_findings(measured(tmp_path, own=QUIET.taxed(0.025), again=spread), {})
    assert "a tax of TPOT p50" in verdict(findings, None, ("tpot_p50",)).line
    assert "no tax of TPOT p90" in verdict(findings, None, ("tpot_p90",)).line
    assert "a tax, of one launch" in verdict(findings, None).line


def test_over_one_launch_the_loads_decide_together(taxed: Findings) -> None:
    """Geometric mean of the loads' taxes, in an interval narrower than at any of them."""
    mode = taxed.modes[0]
    (judged,) = (j for j in judge(mode) if j.metric == "ttft_p90")
    own = [t.own for t in mode.taxes if t.metric == "ttft_p90"]
    assert judged.rates_per_s == taxed.campaigns.rates_per_s
    assert np.log1p(judged.point) == pytest.approx(np.mean([np.log1p(o.point) for o in own]))
    assert "req/s together)" in judged_words(judged)
    taxes = [replace(t, floor=Estimate(0.0, np.zeros(10), 10)) for t in mode.taxes]
    (judged,) = (j for j in judge(replace(mode, taxes=tuple(taxes))) if j.metric == "ttft_p90")
    widths = [high - low for low, high in (o.interval(0.95) for o in own)]
    assert judged.high - judged.low < 0.75 * np.mean(widths)


def test_differences_of_plain_from_itself_that_cancel_are_no_quiet_host(alike: Findings) -> None:
    taxes = [t for t in alike.modes[0].taxes if t.metric == "tpot_p50"]
    floors = (0.06, -0.03, -0.0274)
    made = [replace(t, floor=Estimate(f, np.full(10, f), 10)) for t, f in zip(taxes, floors, strict=True)]
    assert floor_over_loads(made, "tpot_p50") == pytest.approx(0.06 / 3**0.5)
    assert floor_over_loads([*made[:2], replace(made[2], floor=unavailable("lost"))], "tpot_p50") is None
    alike_ones = [replace(t, floor=Estimate(0.06, np.full(10, 0.06), 10)) for t in taxes]
    assert floor_over_loads(alike_ones, "tpot_p50") == pytest.approx(0.06)


def _load(log_ratios: np.ndarray, rate: float, **changes: Any) -> LoadTax:
    """TTFT p50 with a plain that does not differ from itself."""
    own = Estimate(float(np.expm1(np.median(log_ratios))), np.expm1(log_ratios), 40, freedom=4.0)
    made = LoadTax(rate, "ttft_p50", own, Estimate(0.0, np.zeros(10), 40), (1.0, 1.0, 1.0))
    return replace(made, **changes)


def _together(findings: Findings, taxes: list[LoadTax]) -> Judged:
    (found,) = judge(replace(findings.modes[0], taxes=tuple(taxes)), 8)
    return found


def test_no_end_lies_below_minus_100_percent(alike: Findings) -> None:
    """Stalls make resamples that spread over a factor of ten; stretched around the point as ratios they would reach below -1."""
    wide = np.linspace(-0.2, 2.3, 4001)
    found = _together(alike, [_load(wide, rate) for rate in (1.0, 2.0, 4.0)])
    assert found.low is not None and found.high is not None
    assert -1 < found.low < found.point < found.high


@pytest.mark.parametrize(
    "changes",
    [
        [{"host_work": 0.3}, {}, {"host_work": -0.23}],
        [{"late": 0.21}, {}, {"late": -0.17}],
    ],
    ids=["host", "clock"],
)
def test_what_may_be_the_hosts_at_one_load_is_not_cancelled_by_another(
    alike: Findings, changes: list[dict[str, float]]
) -> None:
    """Each correction is a bound, so each load may have all of its own and none of the others'."""
    quiet = np.linspace(-0.001, 0.001, 401)
    taxes = [
        _load(quiet + at, r, **c) for at, r, c in zip((0.18, 0.0, 0.0), (1.0, 2.0, 4.0), changes, strict=True)
    ]
    assert not _together(alike, taxes).told_apart


def test_an_open_end_at_one_load_leaves_the_other_end(alike: Findings) -> None:
    """Requests of the connector failed in some resamples: it is as dear as this at least."""
    own = np.linspace(1.3, 1.5, 1001)
    failed = np.where(np.arange(1001) > 900, np.inf, own)
    found = _together(alike, [_load(own, 1.0), _load(failed, 2.0), _load(own, 4.0)])
    assert found.high is None and found.told_apart
    assert "open]" in judged_words(found)
    gain = _together(alike, [_load(-own, 1.0), _load(-failed, 2.0), _load(-own, 4.0)])
    assert gain.low is None and gain.high is not None and gain.high < 0


def test_what_is_told_apart_has_no_end_of_zero() -> None:
    found = Judged("async", (1.0,), "tpot_p50", 0.005, 0.00004, 0.0099, "of one launch")
    assert judged_words(found).startswith("TPOT p50 +0.50 % [+0.004 %, +0.99 %]")
