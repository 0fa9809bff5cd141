"""A shape of Phase B is measured at the reference rate where everyone holds it, else at a power-of-two fraction."""

from dataclasses import replace

import msgspec
import pytest

from connector_tax.base.capacity import Limits
from connector_tax.base.documents.rates import ShapeRate
from connector_tax.base.records.cell import Shape
from connector_tax.read.stats.capacity import Capacity, StepCosts
from connector_tax.read.stats.reference import load_rates, shape_rates

OWN, SHORT, LONG = Shape(4096, 256), Shape(512, 64), Shape(32768, 256)
LIMITS = Limits(in_flight=256, kv_tokens=280_000, batched_tokens=8192)
# 8 ms a step, 65 us a prompt token, 120 us a decoding sequence.
COSTS = StepCosts(8000.0, 65.0, 120.0, 0.025, 0.0, 0.03)
PLAIN = Capacity("step records", LIMITS, OWN, {}, costs=COSTS)


def test_what_a_request_takes_is_its_prompt_and_its_share_of_steps() -> None:
    """By hand: 4096 x 65 us; 280,000 / 4,352 = 64 sequences together; 256 tokens x (8000 / 64 + 120 + 0.025 x 4,224) us."""
    assert PLAIN.request_s(OWN) == pytest.approx((4096 * 65 + 256 * (8000 / 64 + 120 + 105.6)) / 1e6)


def test_long_prompts_are_asked_at_a_rate_that_uses_no_more_than_phase_a_does() -> None:
    found = shape_rates([SHORT, OWN, LONG], OWN, 2.0, {"plain": PLAIN})
    assert [found[str(s)].rate_per_s for s in (SHORT, OWN, LONG)] == [2.0, 2.0, 0.25]
    allowed = 2.0 / (PLAIN.per_s(OWN) or 0)
    assert found["32768x256"].plain_use <= allowed < 2 * found["32768x256"].plain_use
    assert found["32768x256"].plain_use_at_reference > 1
    assert found["32768x256"].not_held_by == ("plain",)


def test_one_configuration_that_does_not_hold_a_shape_lowers_it_for_all() -> None:
    """All are measured at the same rate, or their taxes would compare loads."""
    shape = Shape(4096, 512)
    assert shape_rates([shape], OWN, 1.0, {"plain": PLAIN})["4096x512"].rate_per_s == 1.0
    slow = replace(PLAIN, costs=replace(COSTS, per_prefill_token_us=130.0, per_decode_seq_us=400.0))
    found = shape_rates([shape], OWN, 1.0, {"plain": PLAIN, "slow": slow})["4096x512"]
    assert (found.rate_per_s, found.not_held_by) == (0.5, ("slow",))


def test_a_prompt_that_was_timed_counts_where_attention_makes_it_longer_than_its_tokens_say() -> None:
    timed = replace(PLAIN, prompt_s={32768: 6.0})
    assert shape_rates([LONG], OWN, 2.0, {"plain": timed})["32768x256"].rate_per_s == 0.0625


def test_without_step_records_prompts_that_were_timed_and_the_throughput_seen_say_it() -> None:
    """2.8 req/s at most and 0.27 s a prompt leave 0.34 ms a token; eight times the context is taken as eight times that."""
    probed = Capacity(
        "probe", LIMITS, OWN, {4096: 0.27, 32768: 2.2, 512: 0.04}, decode_s=(1 / 2.8 - 0.27) / 256
    )
    assert probed.per_s(OWN) == pytest.approx(2.8)
    found = shape_rates([SHORT, OWN, LONG], OWN, 2.0, {"plain": probed})
    assert [found[str(s)].rate_per_s for s in (SHORT, OWN, LONG)] == [2.0, 2.0, 0.125]
    assert found["512x64"].known_from == "probe"


def test_where_nothing_is_known_shapes_are_measured_at_the_reference_rate() -> None:
    nothing = Capacity("nothing", LIMITS, OWN, {})
    found = shape_rates([LONG], OWN, 2.0, {"plain": nothing})["32768x256"]
    assert found == ShapeRate(
        rate_per_s=2.0, plain_use=None, plain_use_at_reference=None, not_held_by=(), known_from="nothing"
    )


def test_where_plain_is_unknown_the_others_lower_a_shape() -> None:
    nothing = Capacity("nothing", LIMITS, OWN, {})
    entry = shape_rates([LONG], OWN, 2.0, {"plain": nothing, "known": PLAIN})["32768x256"]
    assert (entry.rate_per_s, entry.not_held_by) == (0.25, ("known",))


def test_random_arrivals_queue_at_two_thirds_of_the_capacity() -> None:
    fixed, random = (
        shape_rates([LONG], OWN, 2.0, {"plain": PLAIN}, most)["32768x256"] for most in (0.85, 0.5)
    )
    assert (fixed.rate_per_s, random.rate_per_s) == (0.25, 0.125)


def test_under_load_a_shape_is_measured_at_ref_load_or_at_twice_phase_bs_rate_or_not_at_all() -> None:
    """2 req/s of the long prompts are not held, so Phase B has 0.25; 0.5 are more than plain's capacity allows, and 0.25 is measured."""
    safe = shape_rates([SHORT, OWN, LONG], OWN, 2.0, {"plain": PLAIN})
    found = load_rates([SHORT, OWN, LONG], OWN, 4.0, safe, PLAIN)
    assert [found[str(s)].rate_per_s for s in (SHORT, OWN, LONG)] == [4.0, 4.0, None]
    assert found["32768x256"].plain_use > 0.85
    assert found["32768x256"].not_held_by == ("plain",)
    idle = {**safe, "32768x256": msgspec.structs.replace(safe["32768x256"], rate_per_s=0.125)}
    twice = load_rates([LONG], OWN, 4.0, idle, PLAIN)["32768x256"]
    assert (twice.rate_per_s, twice.not_held_by) == (0.25, ("plain",))
    assert twice.plain_use <= 0.85 < twice.plain_use_at_reference
