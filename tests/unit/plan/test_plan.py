"""The plan is a pure function of the config, and its hashes touch exactly what changed."""

import json
from dataclasses import replace
from pathlib import Path
from time import monotonic

import msgspec
import pytest
from builders import SMALL, campaign_config

from connector_tax.base.config import CampaignConfig, SessionFile, load_campaign
from connector_tax.base.config.model import PhaseCConfig, PhaseDConfig
from connector_tax.base.documents.campaign import CampaignDocument
from connector_tax.base.documents.rates import ReferenceRatesFile
from connector_tax.base.files import document_of, to_json
from connector_tax.base.plan import (
    campaign_document,
    cells_of,
    config_of,
    run_order,
    spec_hash,
    until_overload,
)
from connector_tax.base.plan.duration import (
    expected_cell_s,
    requests_per_s,
)
from connector_tax.base.records.cell import PHASES, CellSpec, Shape
from connector_tax.base.records.rates import ReferenceRates
from connector_tax.run.measure.time_left import OutOfTime, TimeLimit

CONFIG = Path(__file__).parents[3] / "config"


@pytest.fixture
def config() -> CampaignConfig:
    return load_campaign(CONFIG / "config.yaml")


def test_phase_a_climbs_the_rates(config: CampaignConfig) -> None:
    """An overloaded cell comes last, so it cannot spoil one that follows."""
    ids = [c.cell_id for c in cells_of(config, "plain", "a")]
    assert ids[0] == "r0.5_4096x256"
    assert ids[-1] == "r32_4096x256"


def test_phase_b_is_the_product_of_lengths(config: CampaignConfig) -> None:
    cells = cells_of(config, "plain", "b", ReferenceRates(2.0, 2.0))
    assert len(cells) == 9
    assert {c.rate_per_s for c in cells} == {2.0}


def hashes(config: CampaignConfig, connector: str, phase: str) -> list[str]:
    cells = cells_of(config, connector, phase, ReferenceRates(1.0, 1.0))
    return [spec_hash(config, connector, cell) for cell in cells]


def test_phase_b_prime_is_for_its_configurations_only(config: CampaignConfig) -> None:
    assert len(cells_of(config, "nixl_both", "b_prime", ReferenceRates(8.0, 8.0))) == 3
    assert cells_of(config, "noop_connector", "b_prime", ReferenceRates(8.0, 8.0)) == ()


def test_every_configuration_gets_the_same_load(config: CampaignConfig) -> None:
    """Seeds depend on phase, rate and shape, never on the connector."""
    assert cells_of(config, "plain", "a") == cells_of(config, "mooncake_both", "a")


def test_a_changed_rate_list_keeps_the_other_cells(config: CampaignConfig) -> None:
    """Adding a rate leaves the hash of every other cell alone."""
    more = msgspec.structs.replace(config, phase_a_rates_per_s=(0.5, 1, 2, 3, 4, 8, 16, 32))
    before = {c.cell_id: spec_hash(config, "plain", c) for c in cells_of(config, "plain", "a")}
    after = {c.cell_id: spec_hash(more, "plain", c) for c in cells_of(more, "plain", "a")}
    assert {k: after[k] for k in before} == before


def test_the_order_is_a_seeded_permutation_of_its_own_per_phase(config: CampaignConfig) -> None:
    orders = [run_order(config, phase) for phase in PHASES]
    assert all(sorted(o) == sorted(config.members(phase)) for o, phase in zip(orders, PHASES, strict=True))
    assert orders == [run_order(config, phase) for phase in PHASES]
    assert len(set(orders)) > 1
    assert run_order(msgspec.structs.replace(config, seed=config.seed + 1), "a") != orders[0]


def read_again(document: CampaignDocument) -> CampaignDocument:
    """From the text of ``campaign.json``."""
    return document_of(json.loads(to_json(document)), CampaignDocument, "campaign.json")


def test_campaign_json_holds_the_whole_config(config: CampaignConfig) -> None:
    """A door that reads campaign.json gets the very config back."""
    whole = with_levels(with_conversations(config))
    document = read_again(campaign_document(whole, date="2026-01-02", created_utc="2026-01-02T03:04:05Z"))
    assert config_of(document) == whole
    del document.config["phase_d"]
    assert config_of(document) == with_conversations(config), "an older one has no levels"


def test_low_rates_take_as_long_as_their_completions_need(config: CampaignConfig) -> None:
    """Warm-up plus 50 completions, or the window's floor; up to the last look 200: 410 s at 0.5 req/s, where a cell ends after 340."""
    cells = cells_of(config, "plain", "a")
    assert [expected_cell_s(c, c.rate_per_s) for c in cells] == [110, 70, 70, 70, 70, 70, 70]
    most = [expected_cell_s(c, c.rate_per_s, most=True) for c in cells]
    assert most == [340, 210, 110, 70, 70, 70, 70]


def test_plain_is_launched_twice_in_a_block_and_phases_a_and_b_are_blocks(config: CampaignConfig) -> None:
    """Its second launch in Phase B measures Phase A's shape, which is what a block is asked for."""
    assert [p for p in config.phases if "plain_again" in config.members(p)] == ["a", "b", "r1", "r2"]
    assert "plain_again" not in msgspec.structs.replace(config, repeats=0).members("a")
    assert cells_of(config, "plain_again", "a") == cells_of(config, "plain", "a")
    rates = ReferenceRates(2.0, 2.0)
    (again,) = cells_of(config, "plain_again", "b", rates)
    assert again in cells_of(config, "plain", "b", rates)
    assert again.shape == config.phase_a_shape


def test_a_shape_has_its_own_rate_where_the_reference_rate_is_too_much(config: CampaignConfig) -> None:
    long, prime = Shape(32768, 256), Shape(512, 256)
    rates = ReferenceRates(2.0, 4.0, {long: 0.25}, {long: 0.5})
    b = {c.shape: c.rate_per_s for c in cells_of(config, "nixl_both", "b", rates)}
    assert b.pop(long) == 0.25 and set(b.values()) == {2.0}
    again = {c.shape: c.rate_per_s for c in cells_of(config, "nixl_both", "b_prime", rates)}
    assert (again[long], again[prime]) == (0.5, 4.0)
    document = {"ref_safe_per_s": 2, "ref_load_per_s": 4, "b_prime_needed": True}
    document |= {"shapes": {"32768x256": {"rate_per_s": 0.25}}}
    read = document_of(document, ReferenceRatesFile, "reference_rates.json").rates
    assert read == ReferenceRates(2.0, 4.0, {long: 0.25})


def test_a_block_takes_so_many_requests_and_no_more(config: CampaignConfig) -> None:
    (cell,) = cells_of(config, "plain", "r1", ReferenceRates(2.0, 2.0))
    assert (cell.min_completed, cell.duration_s, cell.max_completed) == (50, 25.0, None)
    (long,) = cells_of(
        msgspec.structs.replace(config, repeat_requests=None), "plain", "r1", ReferenceRates(2.0, 2.0)
    )
    assert (long.min_completed, long.duration_s, long.max_completed) == (50, 60.0, 200)


def test_a_sweep_ends_after_its_first_overloaded_rate(config: CampaignConfig) -> None:
    cells = cells_of(config, "plain", "a")
    at_4_and_8 = {"r4_4096x256", "r8_4096x256"}
    swept = until_overload(config, cells, lambda c: c.cell_id in at_4_and_8)
    assert [c.rate_per_s for c in swept] == [0.5, 1, 2, 4]
    twice = msgspec.structs.replace(config, phase_a_stop_after_overloaded=2)
    assert until_overload(twice, cells, lambda c: c.cell_id in at_4_and_8)[-1].rate_per_s == 8
    assert until_overload(twice, cells, lambda c: c.cell_id in {"r1_4096x256", "r4_4096x256"}) == cells
    everything = msgspec.structs.replace(config, phase_a_stop_after_overloaded=None)
    assert until_overload(everything, cells, lambda c: True) == cells


def test_the_recorders_cost_is_measured_by_a_pair_side_by_side(config: CampaignConfig) -> None:
    """The same load on either side, other prompts: the prefix cache would know the first ones."""
    watched = msgspec.structs.replace(config, observer_effect=True)
    on, off, *others = cells_of(watched, "plain", "b", ReferenceRates(2.0, 2.0))
    assert (on.cell_id, off.cell_id) == ("r2_4096x256", "r2_4096x256_unrecorded")
    assert (on.recorded, off.recorded) == (None, False)
    assert replace(off, recorded=None, seed=on.seed) == on and off.seed != on.seed
    before = cells_of(config, "plain", "b", ReferenceRates(2.0, 2.0))
    assert {*others, on} == set(before)
    assert CellSpec.from_json(off.to_json()) == off


def with_conversations(config: CampaignConfig) -> CampaignConfig:
    file = SessionFile("config/sessions/chat.jsonl", "0" * 64, turns_per_session=5.0)
    return msgspec.structs.replace(config, phase_c=PhaseCConfig((file,), warmup_s=45.0))


def test_the_turns_of_conversations_come_at_the_reference_rate(config: CampaignConfig) -> None:
    """Five turns a session at 2 req/s are 0.4 sessions/s."""
    talking = with_conversations(config)
    (cell,) = cells_of(talking, "plain", "c", ReferenceRates(2.0, 2.0))
    assert (cell.rate_per_s, cell.warmup_s, cell.cell_id) == (0.4, 45.0, "r0.4_chat")
    assert cells_of(talking, "nixl_both", "c", ReferenceRates(2.0, 2.0)) == (cell,)
    # Warm-up, and 200 requests at 2 req/s.
    assert expected_cell_s(cell, 2.0) == 145.0
    assert requests_per_s(talking, cell) == 2.0
    # It fits into a sitting of three minutes: by the rate of the sessions it was 10 min, and in no sitting of ten any cell of theirs began.
    TimeLimit(monotonic() + 180, launch_s=20).check_launch(cell, requests_per_s(talking, cell))
    with pytest.raises(OutOfTime, match=r"a launch and cell r0\.4_chat may take 7 min"):
        TimeLimit(monotonic() + 180, launch_s=20).check_launch(cell, cell.rate_per_s)


def test_other_words_in_a_session_file_are_another_measurement(config: CampaignConfig) -> None:
    talking = with_conversations(config)
    (file,) = talking.phase_c.sessions
    changed = msgspec.structs.replace(
        talking,
        phase_c=msgspec.structs.replace(
            talking.phase_c, sessions=(msgspec.structs.replace(file, sha256="1" * 64),)
        ),
    )
    assert hashes(talking, "plain", "c") != hashes(changed, "plain", "c")
    assert hashes(talking, "plain", "b") == hashes(changed, "plain", "b")


def with_levels(config: CampaignConfig) -> CampaignConfig:
    return msgspec.structs.replace(config, phase_d=PhaseDConfig((0, 60_000, 120_000), (1, 8)))


def test_phase_d_comes_after_the_conversations_and_before_the_blocks(config: CampaignConfig) -> None:
    assert "d" not in config.phases
    both = msgspec.structs.replace(with_levels(with_conversations(config)), repeats=2)
    assert both.phases == (*PHASES, "r1", "r2")


def test_the_cache_only_fills_and_requests_do_not_grow_along_with_it(config: CampaignConfig) -> None:
    """Levels go up within a launch; every other level begins with the most requests."""
    cells = cells_of(with_levels(config), "plain", "d")
    assert [(c.cached_tokens, c.concurrency) for c in cells] == [
        (0, 1), (0, 8), (60_000, 8), (60_000, 1), (120_000, 1), (120_000, 8),
    ]  # fmt: skip
    assert {(c.arrival, c.rate_per_s, c.ramp_up_s, str(c.shape)) for c in cells} == {
        ("concurrency", 0.0, 2.0, "128x256")
    }
    assert cells[2].cell_id == "c8_128x256_k60000"
    # The prefix cache would know the prompts of another level; every configuration gets the same.
    assert len({c.cell_id for c in cells}) == len({c.seed for c in cells}) == len(cells)
    assert cells_of(with_levels(config), "nixl_both", "d") == cells
    assert CellSpec.from_json(cells[2].to_json()) == cells[2]


def test_a_phase_d_leaves_the_hashes_of_other_cells_alone(config: CampaignConfig) -> None:
    (cell, *_) = cells_of(config, "plain", "a")
    assert "cached_tokens" not in cell.to_json()
    assert hashes(config, "plain", "b") == hashes(with_levels(config), "plain", "b")


def test_where_a_sweep_ends_is_in_no_cells_hash(config: CampaignConfig) -> None:
    """Cells that are there are used again; those above the end are measured now."""
    whole = msgspec.structs.replace(config, phase_a_stop_after_overloaded=None)
    cells = cells_of(config, "plain", "a")
    assert [spec_hash(config, "plain", c) for c in cells] == [spec_hash(whole, "plain", c) for c in cells]


def test_every_block_has_an_order_and_a_load_of_its_own() -> None:
    config = campaign_config(**SMALL, repeats=3)
    assert config.phases[-3:] == ("r1", "r2", "r3")
    orders = [run_order(config, p) for p in ("r1", "r2", "r3")]
    assert all(sorted(o) == sorted((*config.connector_ids, "plain_again")) for o in orders)
    assert len(set(orders)) > 1
    first, second = (cells_of(config, "plain", p, ReferenceRates(2.0, 4.0)) for p in ("r1", "r2"))
    assert [c.cell_id for c in first] == [c.cell_id for c in second] == ["r2_256x16", "r4_256x16"]
    assert {c.seed for c in first}.isdisjoint(c.seed for c in second)
    assert first == cells_of(config, "plain_again", "r1", ReferenceRates(2.0, 4.0))
    assert len(cells_of(config, "plain", "r1", ReferenceRates(2.0, 2.0))) == 1
