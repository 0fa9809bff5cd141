"""What runs beside what: phases that stay on one card, and phases whose launches take any."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
from builders import campaign_config

from connector_tax.base.config import CampaignConfig
from connector_tax.base.plan import phases_before, side_by_side_s, slot_of


def campaign(gpus: tuple[int, ...] | None, mix: bool | None = False, **sections: Any) -> CampaignConfig:
    config = campaign_config(repeats=3, **sections)
    return replace(config, engine=replace(config.engine, gpus=gpus, mix_cards=mix))


def test_one_card_has_every_phase_after_the_one_before() -> None:
    for config in (campaign(None), campaign((3,))):
        before = {p: phases_before(config, p) for p in config.phases}
        assert before["b_prime"] == ("b",)
        assert before["r1"] == ("b", "b_prime")
        assert (before["r2"], before["r3"]) == (("r1",), ("r2",))
        assert before["b"] == before["a"] == ()
    assert {slot_of(campaign(None), p) for p in campaign(None).phases} == {0}


def test_a_phase_stays_on_a_card_and_others_run_beside_it() -> None:
    config = campaign((4, 6))
    assert {p: slot_of(config, p) for p in config.phases} == {
        "a": 0,
        "b": 1,
        "b_prime": 0,
        "r1": 1,
        "r2": 0,
        "r3": 1,
    }
    before = {p: phases_before(config, p) for p in config.phases if p != "a"}
    assert before == {"b": (), "b_prime": (), "r1": ("b",), "r2": ("b_prime",), "r3": ("r1",)}


def test_mixed_cards_do_not_idle_while_a_phase_ends() -> None:
    config = campaign((0, 1), mix=True)
    before = {p: phases_before(config, p) for p in config.phases if p != "a"}
    assert before == {"b": (), "b_prime": (), "r1": ("b",), "r2": ("b_prime",), "r3": ("r1",)}


def test_where_there_are_no_cards_they_are_mixed_unless_the_config_says_no() -> None:
    emulated = campaign((0, 1), mix=None)
    assert slot_of(emulated, "a") is None
    real = replace(emulated, engine=replace(emulated.engine, kind="vllm"))
    assert slot_of(real, "a") == 0
    assert slot_of(replace(real, engine=replace(real.engine, mix_cards=True)), "a") is None


def test_what_is_left_is_shared_by_the_cards() -> None:
    left = {"a": 10.0, "b": 40.0, "b_prime": 5.0, "r1": 20.0, "r2": 20.0, "r3": 20.0}
    assert side_by_side_s(campaign(None), left) == 115.0
    assert side_by_side_s(campaign((0, 1), mix=True), left) == 57.5
    # Card 1 has B, R1 and R3; Phase A is alone.
    assert side_by_side_s(campaign((0, 1)), left) == 90.0


def test_a_campaign_of_one_card_is_written_as_it_was() -> None:
    engine = campaign_config().to_json()["engine"]
    assert not {"gpus", "mix_cards", "wait_for_card_s"} & set(engine)
    assert campaign((0, 1)).to_json()["engine"]["gpus"] in ([0, 1], (0, 1))
