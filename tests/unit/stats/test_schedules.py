"""Cells of one schedule are resampled at the same arrivals: their taxes are narrower and hold the truth."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from builders import SMALL, Campaign, campaign_config
from invented_server import Behaviour

from connector_tax.base.records.cell import CellWindow
from connector_tax.base.records.request import RequestRecord
from connector_tax.base.statistics.bootstrap import Estimate
from connector_tax.read.ingest import CellData, read_campaign
from connector_tax.read.stats.cells import CellEstimates, common_arrivals, estimate_cells
from connector_tax.read.stats.taxes import relative

CONFIGS = ("plain", "mooncake_both", "nixl_both")
WARM, N = 200, 200
MS = 1_000_000


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> list[CellData]:
    """One cell of each configuration at the same rate; their requests are replaced in each test."""
    campaign = Campaign(tmp_path_factory.mktemp("cells"), campaign_config(**SMALL), step_timing=False)
    for config in CONFIGS:
        campaign.measure(config, "a")
    found = read_campaign(campaign.root, steps=False).cells()
    by_config = {c.config: c for c in found if c.spec.rate_per_s == 4}
    return [by_config[config] for config in CONFIGS]


def queue(gaps: np.ndarray, service: np.ndarray) -> np.ndarray:
    work = np.concatenate([[0.0], np.cumsum(service[:-1] - gaps[:-1])])
    found: np.ndarray = work - np.minimum.accumulate(work) + service
    return found


def behind(cell: CellData, ttft_ms: np.ndarray, first: int = WARM, last: int = WARM + N) -> CellData:
    """The cell with these first tokens, and nine more 10 ms apart; its window holds requests [first, last)."""
    requests = []
    for seq, wait in enumerate(ttft_ms):
        sched = seq * 1000 * MS
        token = sched + int(wait * MS)
        requests.append(
            RequestRecord(
                *(seq, sched, sched, token, token + 90 * MS + int(wait), token + 90 * MS + int(wait), "ok"),
                *(256, 10, 0, 0, "window"),
            )
        )
    window = CellWindow(0, first * 1000 * MS, last * 1000 * MS, len(ttft_ms) * 1000 * MS, True)
    return replace(cell, requests=requests, window=window)


def campaign_of(
    cells: Sequence[CellData], seed: int, windows: Sequence[tuple[int, int]] = ((WARM, WARM + N),) * 3
) -> list[CellData]:
    """Queues at half their capacity, behind the same bursts; no configuration costs anything."""
    rng = np.random.default_rng(seed)
    gaps = rng.gamma(0.3, 1 / 0.3, WARM + N + 20)
    return [
        behind(cell, 100 * queue(gaps, rng.lognormal(-0.8, 0.47, gaps.size)), *window)
        for cell, window in zip(cells, windows, strict=True)
    ]


def own_schedules(cells: Sequence[CellData]) -> list[CellData]:
    """The same requests as if each configuration had drawn its own arrivals."""
    return [replace(c, spec=replace(c.spec, seed=c.spec.seed + k)) for k, c in enumerate(cells)]


def estimated(cells: Sequence[CellData], draws: int = 400) -> dict[str, CellEstimates]:
    return {e.cell.config: e for e in estimate_cells(cells, 1, draws, confidence=0.95)}


def tax(found: dict[str, CellEstimates], config: str = "nixl_both", q: float = 90.0) -> Estimate:
    return relative(found[config].latency("ttft_ms", q), found["plain"].latency("ttft_ms", q))


def log_width(estimate: Estimate) -> float:
    low, high = estimate.interval(0.95)
    return float(np.log((1 + high) / (1 + low)))


def test_taxes_of_one_schedule_are_held_and_narrower(cells: list[CellData]) -> None:
    """40 campaigns without a tax, and two connectors in each: intervals hold zero and take two thirds of the width."""
    held, paired, apart = 0, [], []
    for seed in range(40):
        campaign = campaign_of(cells, seed)
        together = estimated(campaign)
        for config in CONFIGS[1:]:
            low, high = tax(together, config).interval(0.95)
            held += low <= 0 <= high
        paired.append(log_width(tax(together)))
        apart.append(log_width(tax(estimated(own_schedules(campaign)))))
    assert 0.90 <= held / 80 <= 0.995
    assert np.mean(paired) < 0.8 * np.mean(apart)


def test_levels_are_those_of_a_cell_by_itself(cells: list[CellData]) -> None:
    """Pairing changes which resamples go together, and neither a percentile nor, but for chance, its interval."""
    campaign = campaign_of(cells, 3)
    together, apart = estimated(campaign, 4000), estimated(own_schedules(campaign), 4000)
    for config in CONFIGS:
        one, other = (found[config].latency("ttft_ms", 50.0) for found in (together, apart))
        assert one.point == other.point
        assert one.interval(0.95) == pytest.approx(other.interval(0.95), rel=0.1)


def test_the_order_of_configurations_changes_nothing(cells: list[CellData]) -> None:
    campaign = campaign_of(cells, 4, ((200, 400), (203, 405), (198, 396)))
    first = estimated(campaign)
    for order in permutations(campaign):
        found = estimated(order)
        for config in CONFIGS:
            for key, estimate in first[config].latencies.items():
                assert np.array_equal(found[config].latencies[key].replicates, estimate.replicates)


def test_a_stopping_rule_may_leave_one_cell_a_quarter_of_the_requests(cells: list[CellData]) -> None:
    """50 requests against 200 of the same arrivals, no tax: the interval holds zero in 27 of 30 campaigns or more."""
    held = 0
    for seed in range(30):
        found = estimated(campaign_of(cells, seed, ((200, 400), (200, 250), (200, 400))))
        short = tax(found, "mooncake_both", 50.0)
        low, high = short.interval(0.95)
        assert short.n == 50 and low is not None and high is not None
        held += low <= 0 <= high
    assert held >= 27


def test_a_failed_request_stays_where_it_arrived(cells: list[CellData]) -> None:
    """Every 9th of a connector's requests timed out: its p90 is unavailable, its median is not."""
    plain, own, other = campaign_of(cells, 7)
    failed = [
        replace(r, status="timeout", t_first_token_ns=None, t_last_token_ns=None) if r.seq % 9 == 0 else r
        for r in own.requests
    ]
    whole, broken = estimated([plain, own, other]), estimated([plain, replace(own, requests=failed), other])
    assert broken["mooncake_both"].latency("ttft_ms", 90.0).point is None
    assert log_width(tax(broken, "mooncake_both", 50.0)) > 0
    for key, estimate in whole["nixl_both"].latencies.items():
        assert broken["nixl_both"].latencies[key].point == estimate.point


def test_conversations_and_closed_loops_have_no_common_arrivals(cells: list[CellData]) -> None:
    """There a request leaves when another has ended, so request k is no one's twin."""
    plain, own, _ = campaign_of(cells, 8)
    for change in (
        {"sessions": "chat.jsonl"},
        {"rate_per_s": 0.0, "arrival": "concurrency", "concurrency": 4},
    ):
        pair = [replace(c, spec=replace(c.spec, **change)) for c in (plain, own)]  # type: ignore[arg-type]
        assert common_arrivals(pair, 1) == [{}, {}]
    assert set(common_arrivals([plain, own], 1)[0]) >= {"ttft_ms", "tpot_ms", "e2e_ms"}


def test_cells_behind_a_growing_queue_do_not_widen_their_siblings(tmp_path: Path) -> None:
    """They queue otherwise, and how long a block must be is not theirs to say."""
    slow = Behaviour(capacity_per_s=6)
    config = campaign_config(**SMALL)
    campaign = Campaign(tmp_path, config, {"noop_connector": slow, "mooncake_both": slow}, step_timing=False)
    for connector in ("plain", "noop_connector", "mooncake_both"):
        campaign.measure(connector, "a")
    cells = [
        replace(c, window=replace(c.window, overloaded=True))
        if c.config != "plain" and c.spec.rate_per_s == 8
        else c
        for c in read_campaign(tmp_path).cells()
    ]

    def of_plain(chosen: list[CellData]) -> tuple[float | None, float | None]:
        found = estimate_cells(chosen, 1, 500, confidence=0.95)
        (own,) = [e for e in found if e.cell.config == "plain" and e.cell.spec.rate_per_s == 8]
        return own.latency("ttft_ms", 90.0).interval(0.95)

    assert of_plain(cells) == of_plain([c for c in cells if not c.window.overloaded])
