"""Numbers of two launches, of one side alone, or of a day with other reference rates: each says whose it is."""

import html
import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from connector_tax.base.config.model import PhaseCConfig, SessionFile
from connector_tax.base.documents.aggregate import aggregate_of
from connector_tax.base.files import write_json
from connector_tax.base.plan import campaign_document, cells_of
from connector_tax.base.records.rates import ReferenceRates
from connector_tax.read.compare.changes import Side
from connector_tax.read.compare.comparison import compare
from connector_tax.read.compare.context import on_device
from connector_tax.read.figures import fig8_additivity
from connector_tax.read.figures.style import Drawn
from connector_tax.read.report.mechanism import mechanism

sys.path.insert(0, str(Path(__file__).parents[2]))
from builders import DATE, ROOT, Campaign, fail
from made_pages import page_of
from mutations import CONNECTORS, PLAIN, STACK, Mutation, both, embedded, lost, virtual, without_rates

W = {"phase_a": {"rates_per_s": [1, 2, 4, 8], "input_tokens": 256, "output_tokens": 16}}

# It does not hold 4 req/s, so ref_safe is 2 and ref_load 4.
BEHIND = {"nixl_both": replace(PLAIN.taxed(0.2), capacity_per_s=3.0)}


def words(made: dict[str, Any]) -> str:
    return html.unescape(" ".join(re.sub(r"<[^>]+>", " ", page_of(made)).split()))


def main_tax(made: dict[str, Any], config: str, metric: str) -> dict[str, Any]:
    found = (
        t
        for t in made["main_taxes"]
        if (t["config"], t["metric"], t["reference"]) == (config, metric, "ref_safe")
    )
    return next(found)


def test_what_two_launches_make_is_not_said_to_be_of_one(tmp_path: Path) -> None:
    """The stack's tax at ref_safe is Phase B's, since its cell of Phase A is lost; at ref_load, and the no-op connector's, it is Phase A's."""
    made = Mutation(W, behaviours=BEHIND, then=lost(STACK, "a", cell_id="r2_256x16")).made(tmp_path)
    (added,) = (a for a in made["amplification"] if (a["config"], a["metric"]) == (STACK, "ttft_p90"))
    assert added["available"]
    text = words(made)
    assert "pp], of one launch each, phase A's less phase B's" in text
    split = text[text.index("What a tax is made of") :]
    assert re.search(r"\+\d+ % \[[^]]*\], of one launch each, phase B's less phase A's", split)


def test_n_counts_the_requests_with_the_connector_and_not_the_fewer_of_both_sides(tmp_path: Path) -> None:
    def few(requests: list[Any]) -> list[Any]:
        kept = {r.seq for r in [r for r in requests if r.phase == "window"][:11]}
        return [r for r in requests if r.phase != "window" or r.seq in kept]

    made = Mutation(changes={"plain": few}).made(tmp_path)
    own = main_tax(made, "nixl_both", "ttft_p90")
    (cell,) = (
        c
        for c in made["cells"]
        if (c["config"], c["phase"], c["cell_id"]) == ("nixl_both", "a", own["cell_id"])
    )
    assert own["n_plain"] == 11
    assert own["n"] == cell["ttft_ms"]["p90"]["n"] > 11


def test_hooks_do_not_fall_behind_with_plain(tmp_path: Path) -> None:
    """Plain has none, so what plain's cell did is no part of theirs."""
    made = Mutation(
        plain=replace(PLAIN, capacity_per_s=3.0),
        behaviours={c: replace(PLAIN, capacity_per_s=9.0) for c in CONNECTORS[1:]},
    ).made(tmp_path)
    at_4 = [t for t in made["taxes"] if (t["config"], t["rate_per_s"], t["phase"]) == ("nixl_both", 4.0, "a")]
    assert {t["metric"]: t["overloaded"] for t in at_4 if t["metric"] in ("ttft_p90", "callback_p50_us")} == {
        "ttft_p90": ["plain"],
        "callback_p50_us": [],
    }


def test_figure_8_draws_the_stack_that_the_campaign_has(tmp_path: Path) -> None:
    connectors = ["plain", "noop_connector", "mooncake_both", "nixl_virtual", "multi_mooncake_nixl"]
    taxes = {"multi_mooncake_nixl": 0.5, "nixl_virtual": 0.2}
    made = Mutation({"connectors": connectors}, taxes=taxes).made(tmp_path / "whole")
    drawn = fig8_additivity.draw(aggregate_of(made))
    assert isinstance(drawn, Drawn)
    assert [row["config"] for row in drawn.data_rows] == [
        "mooncake_both",
        "nixl_virtual",
        "sum",
        "multi_mooncake_nixl",
    ]

    made = Mutation({"connectors": connectors}, taxes=taxes, then=lost("nixl_virtual", "a", "b")).made(
        tmp_path / "lost"
    )
    left_out = fig8_additivity.draw(aggregate_of(made))
    assert not isinstance(left_out, Drawn)
    assert left_out.reason.startswith(
        "of the stack in this campaign, multi_mooncake_nixl, H4 says: Not testable ("
    )


def test_hooks_between_steps_take_no_part_of_a_step(tmp_path: Path) -> None:
    aggregate = aggregate_of(Mutation().made(tmp_path))
    entry = next(a for a in aggregate.attribution if a.config == "nixl_both")
    dear = msgspec.structs.replace(entry.hooks[0], hook="scheduler/on_new_request", us_per_step=1e6)
    more = msgspec.structs.replace(entry, hooks=(*entry.hooks, dear))
    (within, *others), (with_between, *rest) = mechanism(aggregate, entry), mechanism(aggregate, more)
    assert (
        with_between
        == f"{within} Hooks called between steps take 1,000,000 µs more per step, which the column of hooks in the table at ref_safe counts in."
    )
    assert rest == others


def test_phases_of_a_day_with_other_reference_rates_are_problems(tmp_path: Path) -> None:
    def conversations(campaign: Campaign) -> None:
        rates = json.loads(campaign.folder.reference_rates.read_text())["ref_safe_per_s"]
        talk = PhaseCConfig((SessionFile("config/sessions/talk.jsonl", "0" * 64, 3.0),), warmup_s=2.0)
        campaign.config = replace(campaign.config, phase_c=talk)
        document = campaign_document(campaign.config, date=DATE, created_utc=f"{DATE}T00:00:00Z")
        write_json(campaign.folder.campaign_file, document)
        for connector in ("plain", "nixl_both"):
            (spec,) = cells_of(campaign.config, connector, "c", ReferenceRates(rates, rates))
            campaign.cell(connector, spec, prefix_cache_hits_delta=1000.0)
            campaign.receipt(connector, "c")

    damage = both(
        conversations,
        without_rates,
        lost("plain", "a", cell_id="r4_256x16"),
        lost("lmcache_only", "a", cell_id="r2_256x16"),
    )
    made = Mutation(
        W | {"phase_b_prime": {"configs": ["plain", "mooncake_both"], "shapes": [[64, 16]]}},
        behaviours=BEHIND,
        then=damage,
    ).made(tmp_path)
    found = {p["where"]: p["what"] for p in made["problems"]}
    safe, load = (made["reference_rates"][r] for r in ("ref_safe_per_s", "ref_load_per_s"))
    assert found["phase B'"].endswith(f"and ref_load is {load:g}: the taxes at its shapes are of that rate")
    assert found["phase C"].endswith(f"and ref_safe is {safe:g}: the taxes of conversations are of that rate")


def test_a_tax_that_two_launches_lack_has_the_reason_of_the_one_that_stands(tmp_path: Path) -> None:
    """Phase A's cell is lost, and of Phase B's requests failed: the table says the latter, as the headline does."""
    made = Mutation(changes={"mooncake_both/b": fail(every=7)}, then=lost("mooncake_both", "a")).made(
        tmp_path
    )
    reason = main_tax(made, "mooncake_both", "ttft_p90")["reason"]
    assert "failed" in reason
    table = words(made)
    row = table[table.index("At ref_safe") :]
    assert f"not available {reason}" in row


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        (embedded, virtual, "A on the embedded engine, B on a virtual NVIDIA H200: "),
        (virtual, None, "A on a virtual NVIDIA H200, B on a real device: "),
        (embedded, embedded, "On the embedded engine: "),
        (None, None, ""),
    ],
)
def test_the_last_line_of_a_comparison_names_both_devices(a: Any, b: Any, said: str) -> None:
    sides = []
    for name, told in (("A", a), ("B", b)):
        made = json.loads((ROOT / "tests/data/aggregate_example.json").read_text())
        if told is not None:
            told(made)
        sides.append(Side(name, Path(), aggregate_of(made)))
    found = compare(sides[0], sides[1], fail_above=0.05, deciding=("ttft_p90",))
    assert on_device(found) == said
