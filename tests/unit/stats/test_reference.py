"""From Phase A's files to the two reference rates."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from builders import SMALL, Campaign, campaign_config, fail
from invented_server import Behaviour

from connector_tax.base.documents.rates import ReferenceRatesFile
from connector_tax.base.errors import AnalysisError
from connector_tax.base.plan import cells_of
from connector_tax.base.records.request import RequestRecord
from connector_tax.read.ingest import read_campaign
from connector_tax.read.stats.reference import select_reference_rates

CONFIG = campaign_config(**SMALL)


def rates_of(root: Path, **behaviours: Behaviour) -> ReferenceRatesFile:
    campaign = Campaign(root, CONFIG, behaviours, step_timing=False)
    for connector in behaviours:
        campaign.measure(connector, "a")
    return select_reference_rates(read_campaign(root, phases=("a",), steps=False))


def test_nothing_saturated_means_the_highest_rate(tmp_path: Path) -> None:
    found = rates_of(tmp_path, plain=Behaviour(), nixl_both=Behaviour())
    assert (found.ref_safe_per_s, found.ref_load_per_s, found.b_prime_needed) == (8, 8, False)
    assert found.flags == ()
    assert found.participating == ("plain", "nixl_both")


def test_the_first_to_saturate_sets_safe_and_plain_sets_load(tmp_path: Path) -> None:
    """NIXL keeps up with 3 per second, Mooncake with 7, plain with anything."""
    found = rates_of(
        tmp_path,
        plain=Behaviour(),
        mooncake_both=Behaviour(capacity_per_s=7),
        nixl_both=Behaviour(capacity_per_s=3),
    )
    assert (found.ref_safe_per_s, found.ref_load_per_s, found.b_prime_needed) == (2, 8, True)
    assert found.saturation["nixl_both"].saturation_rate_per_s == 4
    assert found.saturation["nixl_both"].fired["4"] == ("throughput", "waiting", "ttft_growth")
    assert found.saturation["plain"].saturation_rate_per_s is None
    assert found.saturation["plain"].criteria["2"].ttft_growth is None


def test_a_slow_but_healthy_server_is_not_saturated(tmp_path: Path) -> None:
    """3 s to the first token and 3 s of decode, at every rate alike: a long drain, no queue."""
    found = rates_of(tmp_path, plain=Behaviour(ttft_ms=2000, tpot_ms=100, noise=0.02))
    assert found.saturation["plain"].saturation_rate_per_s is None
    assert found.saturation["plain"].criteria["8"].throughput_ratio > 0.95


def test_a_rate_at_which_nothing_completes_is_saturated(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path, CONFIG, step_timing=False)
    campaign.measure("plain", "a", change=fail(every=1))
    found = select_reference_rates(read_campaign(tmp_path))
    assert found.saturation["plain"].saturation_rate_per_s == 2
    assert "fallback_lowest_rate" in found.flags


def test_a_configuration_without_usable_cells_has_no_say(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path, CONFIG, step_timing=False)
    campaign.measure("plain", "a")
    campaign.measure("nixl_both", "a", verdict="invalid", reasons=["engine died"])
    found = select_reference_rates(read_campaign(tmp_path))
    assert found.participating == ("plain",)
    assert found.ref_safe_per_s == 8


def test_a_rate_that_one_configuration_lacks_is_not_safe(tmp_path: Path) -> None:
    """NIXL's cell at 8 is damaged, so nothing is known about it there."""
    campaign = Campaign(tmp_path, CONFIG, step_timing=False)
    campaign.measure("plain", "a")
    campaign.measure("nixl_both", "a")
    campaign.run("nixl_both", "a").cell("r8_256x16").requests.unlink()
    found = select_reference_rates(read_campaign(tmp_path))
    assert (found.ref_safe_per_s, found.ref_load_per_s) == (4, 8)


def test_plain_whose_cells_are_all_invalid_is_no_baseline(tmp_path: Path) -> None:
    """As after a ``kill -9`` of a worker in each of them: the message says which run, and what would do."""
    campaign = Campaign(tmp_path, CONFIG, step_timing=False)
    why = ["load-generator worker 0 ended by signal 9"]
    campaign.measure("plain", "a", verdict="invalid", reasons=why)
    campaign.measure("nixl_both", "a")
    with pytest.raises(AnalysisError, match="plain has no usable cell of phase A") as told:
        select_reference_rates(read_campaign(tmp_path))
    assert "Remove bad cells below 2026-11-20_plain/phase_a" in str(told.value)


def _slow_to_start(requests: list[RequestRecord]) -> list[RequestRecord]:
    """Every first token comes after twice the time, and every last one when it came before."""
    return [
        replace(r, t_first_token_ns=2 * (r.t_first_token_ns or 0) - r.t_sched_ns)
        if r.t_first_token_ns is not None
        else r
        for r in requests
    ]


def test_one_criterion_by_chance_at_a_low_rate_leaves_ref_load_where_plain_keeps_up(tmp_path: Path) -> None:
    """TTFT doubled at 4 req/s alone: plain keeps up at 8, and that it is above a saturated rate is flagged.

    ref_safe stays below every saturation rate.
    """
    campaign = Campaign(tmp_path, CONFIG, step_timing=False)
    campaign.measure("plain", "a")
    (spec,) = (s for s in cells_of(CONFIG, "plain", "a") if s.rate_per_s == 4)
    shutil.rmtree(campaign.run("plain", "a").cell(spec.cell_id).path)
    campaign.cell("plain", spec, change=_slow_to_start)
    campaign.receipt("plain")
    found = select_reference_rates(read_campaign(tmp_path, phases=("a",), steps=False))
    assert found.saturation["plain"].fired == {"2": (), "4": ("ttft_growth",), "8": ()}
    assert (found.ref_safe_per_s, found.ref_load_per_s) == (2, 8)
    assert found.saturation["plain"].non_monotonic == (8,)
    assert found.flags == ("non_monotonic_load",)


def test_a_configuration_that_serves_nothing_sets_nobodys_rates(tmp_path: Path) -> None:
    """It hangs: less than half of the lowest rate comes back, and ref_safe would be a fallback for all."""
    found = rates_of(
        tmp_path, plain=Behaviour(), nixl_both=Behaviour(), mooncake_both=Behaviour(capacity_per_s=0.5)
    )
    assert (found.ref_safe_per_s, found.flags) == (8, ())
    assert found.participating == ("plain", "nixl_both")


def lost(root: Path, capacity_per_s: float, rates: tuple[float, ...]) -> ReferenceRatesFile:
    """Plain holds 5 req/s; of Mooncake's Phase A the cells at ``rates`` are invalid."""
    config = campaign_config(**{**SMALL, "phase_a": {**SMALL["phase_a"], "rates_per_s": [0.5, 1, 2, 4, 8]}})
    behaviours = {
        "plain": Behaviour(capacity_per_s=5),
        "mooncake_both": Behaviour(capacity_per_s=capacity_per_s),
    }
    campaign = Campaign(root, config, behaviours, step_timing=False)
    for connector in behaviours:
        for spec in cells_of(config, connector, "a"):
            bad = connector == "mooncake_both" and spec.rate_per_s in rates
            why = {"verdict": "invalid", "reasons": ["engine died: SIGSEGV"]} if bad else {}
            campaign.cell(connector, spec, **why)
        campaign.receipt(connector, "a")
    return select_reference_rates(read_campaign(root, phases=("a",), steps=False))


@pytest.mark.parametrize("rates", [(0.5, 1, 2, 4), (0.5, 1, 2)])
def test_lost_cells_never_raise_the_reference_rate_to_a_saturated_one(
    tmp_path: Path, rates: tuple[float, ...]
) -> None:
    """The lowest rate that all have in common may be the highest of all."""
    found = lost(tmp_path, 3.5, rates)
    assert (found.ref_safe_per_s, found.ref_load_per_s) == (0.5, 4)
    assert "fallback_lowest_rate" in found.flags
    assert "mooncake_both" in found.participating, "it serves 3.5 req/s, seven times the lowest rate"
