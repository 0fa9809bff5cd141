"""``--hours``: a proposal is costed as the plan that it would be, whatever plan it is asked of."""

import sys
from pathlib import Path
from typing import Any

from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).parents[2]))
from builders import campaign_config
from whole_aggregate import block_tax, example, over_blocks

from connector_tax.base.documents.aggregate import Aggregate, aggregate_of
from connector_tax.base.records.rates import ReferenceRates
from connector_tax.run.rehearsal.campaign import PhaseTime
from connector_tax.run.rehearsal.outlook import hours_lines

RATES = ReferenceRates(2.0, 2.0)
# A launch and its release; plain's cells of one launch in Phase A; its one cell in Phase B, up to the last look; its block.
LAUNCH_S, SWEEP_S, CELL_S, BLOCK_S = 120.0, 240.0, 110.0, 60.0
SPREAD = over_blocks(
    0.0,
    -0.01,
    0.01,
    within_launch_sd=0.01,
    requests=100,
    taxes=[{**block_tax("nixl_both", {"r1": 0.4, "r2": 0.4, "r3": 0.4}), "sd": 0.03}],
)


def with_cells(*cells: dict[str, Any]) -> Aggregate:
    return aggregate_of({**example(), "cells": cells, "repeats": [SPREAD]})


MEASURED = with_cells()


def planned(repeats: int) -> Any:
    return campaign_config(
        base="config.yaml",
        connectors=["plain", "noop_connector", "mooncake_both"],
        phase_b_prime={"configs": [], "shapes": []},
        repeats=repeats,
        repeat_requests=100,
    )


def of(phase: str, runs: int, cells_s: float, launch_s: float) -> PhaseTime:
    names = ("plain", "noop_connector", "mooncake_both", "plain_again")[:runs]
    return PhaseTime(phase, dict.fromkeys(names, cells_s / runs), launch_s)


def without_blocks(launch_s: float = LAUNCH_S) -> list[PhaseTime]:
    return [
        of("preflight", 3, 6.0, launch_s),
        of("a", 3, 3 * SWEEP_S, launch_s),
        of("b", 3, 900.0, launch_s),
    ]


def test_a_plan_without_blocks_is_told_what_plain_launched_again_would_take() -> None:
    """The first block makes blocks of Phases A and B too, with plain twice in each: time, and blocks that count."""
    with_blocks = [
        of("preflight", 3, 6.0, LAUNCH_S),
        of("a", 4, 4 * SWEEP_S, LAUNCH_S),
        of("b", 4, 900.0 + CELL_S, LAUNCH_S),
        of("r1", 4, 4 * BLOCK_S, LAUNCH_S),
    ]
    asked = hours_lines(MEASURED, planned(0), RATES, without_blocks(), 2.0)
    assert asked == hours_lines(MEASURED, planned(1), RATES, with_blocks, 2.0)


def test_what_is_on_its_way_when_a_block_ends_is_costed_where_no_block_was_rehearsed() -> None:
    slow = next(c for c in example()["cells"] if (c["phase"], c["rate_per_s"]) == ("a", 2.0))
    slow["e2e_ms"]["p90"]["point"] = 60_000.0
    repeats = [
        int(hours_lines(with_cells(*cells), planned(0), RATES, without_blocks(), 6.0)[4].split()[0])
        for cells in ([], [slow])
    ]
    assert repeats[1] < repeats[0]


def test_launches_cost_what_they_were_rehearsed_to_cost() -> None:
    """2.5 s on the embedded engine, and not the two minutes of vLLM."""
    lines = hours_lines(MEASURED, planned(0), RATES, without_blocks(2.5), 2.0)
    repeats, requests = (int(v) for v in lines[4].split()[:2])
    assert requests == 20
    fixed_s = 6 + 3 * SWEEP_S + 900 + 9 * 2.5 + (SWEEP_S + 2.5) + (CELL_S + 2.5)
    assert repeats == int((2 * 3600 - fixed_s) / (4 * (2.5 + 10 + 20 / 2)))


def test_more_cards_buy_more_blocks_in_the_same_hours() -> None:
    """Blocks go to the cards in turn; preflight, Phase A and one engine at a time are what they were."""

    def blocks(gpus: tuple[int, ...] | None, at_once: int | None = None) -> int:
        plan = planned(0)
        plan = replace(plan, engine=replace(plan.engine, gpus=gpus, mix_cards=False))
        return int(hours_lines(MEASURED, plan, RATES, without_blocks(), 2.0, at_once)[4].split()[0])

    launch_s = LAUNCH_S + 10 + 20 / 2  # 20 requests at 2 req/s, behind a warm-up
    before_s = 6 + 3 * LAUNCH_S + 4 * (SWEEP_S + LAUNCH_S)  # preflight and Phase A
    b_s = 900.0 + CELL_S + 4 * LAUNCH_S
    one = int((7200 - before_s - b_s) / (4 * launch_s))
    # Card 1 has Phase B and every second block, and decides; card 0 has the first of the others.
    assert (blocks(None), blocks((0, 1), 1), blocks((0, 1))) == (one, one, 2 * one + 1)
