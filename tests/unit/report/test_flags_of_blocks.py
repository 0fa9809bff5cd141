"""A tax over blocks carries the flags of the cells that it is a mean of, and of no others."""

import copy
from typing import Any

import pytest
from two_campaigns import Aggregate, compared, over_blocks, two_days
from whole_aggregate import block_tax, typed
from whole_aggregate import over_blocks as repeats

from connector_tax.base.documents.aggregate import TaxRow, aggregate_of
from connector_tax.read.compare.comparison import flags_behind
from connector_tax.read.compare.text import comparison_text

CONFIG, BLOCKS = "mooncake_both", ("r1", "r2", "r3")


@pytest.fixture
def pair() -> tuple[Aggregate, Aggregate]:
    """Four blocks were measured, and Mooncake lost the last one."""
    days = two_days()
    for value in days:
        over_blocks(value, 3)
        taxes = [block_tax(CONFIG, dict.fromkeys(BLOCKS, 0.4))]
        value["repeats"] = [
            repeats(0.0, -0.01, 0.01, blocks=4, metric=m, taxes=taxes) for m in ("ttft_p90", "tpot_p90")
        ]
        own = [c for c in value["cells"] if c["phase"] == "a" and c["cell_id"] == tax_of(value)["cell_id"]]
        for cell in [c for c in own if c["config"] in ("plain", CONFIG)]:
            ids = ("plain", "plain_again") if cell["config"] == "plain" else (CONFIG,)
            for block in (*BLOCKS, "r4", "b_prime"):
                value["cells"] += [{**copy.deepcopy(cell), "config": c, "phase": block} for c in ids]
    return days


def tax_of(value: Aggregate) -> dict[str, Any]:
    wanted = (CONFIG, "ref_safe", "ttft_p90")
    return next(t for t in value["main_taxes"] if (t["config"], t["reference"], t["metric"]) == wanted)


def flag(value: Aggregate, config: str, phase: str, **changed: Any) -> None:
    place = (config, phase, tax_of(value)["cell_id"])
    cell = next(c for c in value["cells"] if (c["config"], c["phase"], c["cell_id"]) == place)
    cell |= {"flags": ["client_limited"], **changed}


@pytest.mark.parametrize("config", [CONFIG, "plain_again"])
def test_a_flag_of_one_of_its_blocks_is_carried(config: str, pair: tuple[Aggregate, Aggregate]) -> None:
    flag(pair[0], config, "r2")
    assert flags_behind(aggregate_of(pair[0]), typed(tax_of(pair[0]), TaxRow)) == {"client_limited"}


@pytest.mark.parametrize(
    ("config", "phase", "changed"),
    [
        (CONFIG, "r4", {"verdict": "invalid", "usable": False}),
        ("plain_again", "r4", {}),
        (CONFIG, "b_prime", {}),
    ],
    ids=["an invalid cell", "plain's second launch in a block it lost", "phase B'"],
)  # fmt: skip
def test_a_flag_of_another_cell_is_not(
    config: str, phase: str, changed: dict[str, Any], pair: tuple[Aggregate, Aggregate]
) -> None:
    flag(pair[0], config, phase, **changed)
    assert flags_behind(aggregate_of(pair[0]), typed(tax_of(pair[0]), TaxRow)) == set()


@pytest.mark.parametrize(
    ("config", "metric", "carried"),
    [
        ("plain", "ttft_p90", {"client_limited"}),
        ("plain", "callback_p50_us", set()),
        ("plain_again", "ttft_p90", set()),
    ],
)
def test_a_tax_of_one_launch_has_the_flags_of_plain_but_for_hooks(
    config: str, metric: str, carried: set[str], pair: tuple[Aggregate, Aggregate]
) -> None:
    """Hooks are measured in the connector's own cell alone."""
    tax = tax_of(pair[0]) | {"n_blocks": 1, "phase": "b_prime", "metric": metric}
    flag(pair[0], config, "b_prime")
    assert flags_behind(aggregate_of(pair[0]), typed(tax, TaxRow)) == carried


@pytest.mark.parametrize(("phase", "said"), [("r2", True), ("r4", False)])
def test_campaigns_differ_by_the_flags_behind_the_taxes_that_are_compared(
    phase: str, said: bool, pair: tuple[Aggregate, Aggregate]
) -> None:
    for value in pair:
        value["main_taxes"] = [t for t in value["main_taxes"] if t["unit"] == "ratio"]
    flag(pair[1], CONFIG, phase)
    text = comparison_text(compared(*pair))
    assert ("  flags of the cells: none / client_limited\n" in text) == said
