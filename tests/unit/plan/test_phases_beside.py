"""What runs beside what: phases that stay on one card, and phases whose launches take any."""

from collections.abc import Mapping
from typing import Any

from builders import campaign_config
from msgspec.structs import replace

from connector_tax.base.config import CampaignConfig
from connector_tax.base.plan import phases_before, priority_of, run_order, schedule, slot_of, wall_s
from connector_tax.base.records.cell import Phase


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


def test_on_several_cards_every_launch_of_a_phase_comes_before_those_of_later_ones() -> None:
    """Also of B', which launches plain once, where blocks launch it twice: else a block's first launch is dealt out before B' has begun."""
    for mix in (False, True):
        config = replace(campaign((0, 1), mix=mix), repeats=8)
        every = [priority_of(config, p, c) for p in config.phases for c in run_order(config, p)]
        assert every == sorted(set(every), reverse=True)


def test_where_there_are_no_cards_they_are_mixed_unless_the_config_says_no() -> None:
    emulated = campaign((0, 1), mix=None)
    assert slot_of(emulated, "a") is None
    real = replace(emulated, engine=replace(emulated.engine, kind="vllm"))
    assert slot_of(real, "a") == 0
    assert slot_of(replace(real, engine=replace(real.engine, mix_cards=True)), "a") is None


def seconds(config: CampaignConfig, **of_a_launch: float) -> dict[Phase, Mapping[str, float]]:
    return {p: dict.fromkeys(config.members(p), of_a_launch[p]) for p in config.phases if p in of_a_launch}


THREE = {
    "connectors": ["plain", "noop_connector"],
    "phase_b_prime": {"configs": ["plain"], "shapes": [[64, 8]]},
}
LAUNCHES = {"a": 3.0, "b": 10.0, "b_prime": 2.0, "r1": 5.0, "r2": 5.0, "r3": 5.0}


def test_one_card_takes_as_long_as_its_launches_together() -> None:
    one = campaign(None, **THREE)
    run_s = seconds(one, **LAUNCHES)
    assert wall_s(one, run_s) == 3 * 3 + 3 * 10 + 2 * 2 + 3 * 3 * 5 == 88
    for config in (campaign((0, 1), **THREE), campaign((0, 1), mix=True, **THREE)):
        assert wall_s(config, run_s, gpus=1) == 88, "one engine at a time, whichever card it has"


def test_phases_that_stay_on_their_card_take_as_long_as_the_fullest_card() -> None:
    """By hand: A alone until 9, then card 1 has B, R1 and R3 with 30 + 15 + 15 s, and card 0 has B' and R2 with 4 + 15 s."""
    config = campaign((4, 6), **THREE)
    turns = schedule(config, seconds(config, **LAUNCHES))
    spans = {
        p: (min(t.begin_s for t in own), max(t.end_s for t in own), {t.place for t in own})
        for p in config.phases
        if (own := [t for t in turns if t.phase == p])
    }
    assert spans == {
        "a": (0, 9, {0}), "b": (9, 39, {1}), "b_prime": (9, 13, {0}),
        "r1": (39, 54, {1}), "r2": (13, 28, {0}), "r3": (54, 69, {1}),
    }  # fmt: skip
    assert wall_s(config, seconds(config, **LAUNCHES)) == 69


def test_mixed_cards_share_a_phase_and_begin_the_next_one() -> None:
    """By hand, three launches of A on two cards: 3 + 3 s, half of the second round idle, since the rates are made of all of A.

    Then B on both until 16, its third launch until 26 beside both of B' (16 to 20), and R1, which waits for all of B.
    """
    config = campaign((0, 1), mix=True, **THREE)
    run_s = seconds(config, **{p: s for p, s in LAUNCHES.items() if p in ("a", "b", "b_prime", "r1")})
    turns = [(t.phase, t.place, t.begin_s, t.end_s) for t in schedule(config, run_s)]
    assert turns == [
        ("a", 0, 0, 3), ("a", 1, 0, 3), ("a", 0, 3, 6),
        ("b", 0, 6, 16), ("b", 1, 6, 16), ("b_prime", 1, 16, 18), ("b_prime", 1, 18, 20), ("b", 0, 16, 26),
        ("r1", 0, 26, 31), ("r1", 1, 26, 31), ("r1", 0, 31, 36),
    ]  # fmt: skip


def test_a_campaign_of_one_card_is_written_as_it_was() -> None:
    engine = campaign_config().to_json()["engine"]
    assert not {"gpus", "mix_cards", "wait_for_card_s"} & set(engine)
    assert campaign((0, 1)).to_json()["engine"]["gpus"] in ([0, 1], (0, 1))
