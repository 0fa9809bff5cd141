"""Verdicts worked out by hand: supported, refuted, undetermined, not testable; also of intervals with an open end."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm
from scipy.stats import t as student
from specs import spec_of, tax_of_shape

from connector_tax.base.documents.aggregate import Hypothesis, Missing
from connector_tax.base.statistics.bootstrap import Estimate, student_factor, unavailable
from connector_tax.base.statistics.decisions import against, effect_of, grows, inside, p_of, shares
from connector_tax.read.stats.hypotheses import Evidence, dominated, judge_hypotheses, prior_label
from connector_tax.read.stats.taxes import Tax, Trend, relative, trend_of, verdict

STACK = "multi_mooncake_lmcache"


def tax(point: float, half_width: float = 0.01, *, lost: float = 0.0) -> Estimate:
    """A tax of ``point`` plus or minus about ``half_width``, independent of the others; the share ``lost`` of its resamples met failures."""
    values = np.linspace(point - half_width, point + half_width, 401)
    if lost:
        values[-round(401 * lost) :] = np.inf
    seed = round(1e6 * (1 + point + half_width))
    return Estimate(point, np.random.default_rng(seed).permutation(values), 200)


def normal(point: float, sd: float, draws: int = 40_000) -> Estimate:
    return Estimate(point, np.random.default_rng(5).normal(point, sd, draws), 200)


def trend(lengths: dict[int, Estimate]) -> dict[str, Trend]:
    """Of Mooncake, with one other length and one rate."""
    shapes = {(k, 64): tax_of_shape(e) for k, e in lengths.items()}
    return {"mooncake_both": trend_of(shapes, queueing_allowed=True)}


def judged(headline: dict[str, Estimate], **more: Any) -> list[Hypothesis]:
    values = {"by_input": {}, "by_output": {}, "absent": {}, "stacks": {}, "confidence": 0.95, **more}
    return judge_hypotheses(Evidence(headline=headline, **values))


def verdicts(headline: dict[str, Estimate], **more: Any) -> dict[str, Hypothesis]:
    return {v.id: v for v in reversed(judged(headline, **more))}


@pytest.mark.parametrize(
    ("value", "width", "outcome", "conclusions"),
    [
        (0.45, 0.01, "supported", ("prior_kept",)),
        (0.12, 0.02, "supported", ("prior_revised",)),
        (0.05, 0.02, "refuted", ("coupling", "prior_revised")),
        (0.047, 0.07, "undetermined", ("prior_revised",)),
        (0.24, 0.58, "undetermined", ("prior_open",)),
        (0.30, 0.58, "undetermined", ("prior_kept",)),
        (0.24, 0.05, "supported", ("prior_open",)),
        (0.26, 0.05, "supported", ("prior_kept",)),
    ],
)
def test_h1(value: float, width: float, outcome: str, conclusions: tuple[str, ...]) -> None:
    """The prior is kept by the value and revised by the whole interval, whatever the verdict is."""
    found = verdicts({"mooncake_both": tax(value, width)})["H1"]
    assert (found.outcome, found.conclusions) == (outcome, conclusions)


@pytest.mark.parametrize(
    ("gap", "outcome", "conclusions"),
    [
        (0.07, "supported", ()),
        (0.02, "refuted", ("smaller_than_replay",)),
        (-0.005, "refuted", ("smaller_than_replay",)),
        (-0.08, "refuted", ("inverted",)),
        (0.05, "undetermined", ()),
        (0.10, "undetermined", ()),
        (0.2, "refuted", ("larger_than_replay",)),
    ],
)
def test_h2(gap: float, outcome: str, conclusions: tuple[str, ...]) -> None:
    """Inverted only where the whole interval is below zero."""
    found = verdicts({"mooncake_both": tax(0.3 + gap), "nixl_both": Estimate(0.3, np.full(401, 0.3), 200)})
    assert (found["H2"].outcome, found["H2"].conclusions) == (outcome, conclusions)


@pytest.mark.parametrize(
    ("asked", "others"),
    [("nixl_both", ("nixl_producer", "nixl_virtual")), ("nixl_virtual_consumer", ())],
)
def test_h2_is_asked_of_the_nixl_that_there_is(asked: str, others: tuple[str, ...]) -> None:
    """vLLM deprecates kv_both for NIXL; its successor roles have entries of their own."""
    own, members = {"mooncake_both": tax(0.3)}, frozenset((*others, asked))
    found = verdicts(own | {c: tax(0.1) for c in members}, members=members)["H2"]
    assert found.outcome != "not testable"
    assert found.numbers.gap.point == pytest.approx(0.2)
    lost = verdicts(own, members=members, absent={asked: "skipped: no nixl"})
    assert lost["H2"].missing == (Missing("skipped: no nixl", asked),)


@pytest.mark.parametrize(
    ("noop", "outcome", "conclusions"),
    [
        (0.04, "supported", ("implementation_dominates",)),
        (0.15, "supported", ("mixed",)),
        (0.30, "refuted", ("framework_dominates",)),
        (0.20, "undetermined", ()),
        (0.115, "supported", ()),
    ],
)
def test_h3(noop: float, outcome: str, conclusions: tuple[str, ...]) -> None:
    """A label holds for the whole interval of the share, or is not given."""
    found = verdicts({"mooncake_both": tax(0.40, 0.02), "noop_connector": tax(noop)})["H3"]
    assert (found.outcome, found.conclusions) == (outcome, conclusions)


def test_the_label_of_h3_does_not_decide_what_its_outcome_leaves_open() -> None:
    """The tax is just told from zero: 1.8 % of its resamples are below, where the quotient is a small or negative number."""
    found = verdicts({"mooncake_both": normal(0.021, 0.01), "noop_connector": normal(0.001, 1e-6)})["H3"]
    assert (found.outcome, found.conclusions) == ("undetermined", ())
    # 2.5 % of the resamples of the tax lie below 0.0014, of which 0.001 is 71 %.
    assert found.numbers.share.high is None or found.numbers.share.high > 0.5
    open_ = verdicts({"mooncake_both": normal(0.02, 0.0105), "noop_connector": normal(0.001, 1e-6)})["H3"]
    assert (open_.numbers.share.high, open_.numbers.share.reason) == (None, "open_tax")


@pytest.mark.parametrize(
    ("own", "conclusion", "reason"),
    [
        (tax(0.0, 0.05), "no_tax_to_split", "zero"),
        (tax(-0.2), "gain_to_split", "no_tax"),
        (tax(0.05, 0.4, lost=0.1), "tax_to_split_unknown", None),
    ],
    ids=["none", "gain", "open"],
)
def test_h3_has_nothing_to_split_without_a_tax(own: Estimate, conclusion: str, reason: str | None) -> None:
    found = verdicts({"mooncake_both": own, "noop_connector": tax(0.02)})["H3"]
    assert (found.outcome, found.conclusions) == ("undetermined", (conclusion,))
    if reason is not None:
        assert (found.numbers.share.point, found.numbers.share.reason) == (None, reason)


def test_a_share_of_a_tax_that_is_none_is_beyond_all_bounds_on_the_parts_side() -> None:
    part, whole = np.array([1.0, 1.0, -1.0, 0.0, np.nan, 1.0, 1.0]), np.array([2.0, -1, -1, -1, 1, 0, np.inf])
    np.testing.assert_array_equal(shares(part, whole), [0.5, np.inf, -np.inf, np.nan, np.nan, np.inf, 0.0])


@pytest.mark.parametrize(
    ("stack", "outcome", "conclusions"),
    [
        (0.40, "supported", ("additive",)),
        (0.80, "refuted", ("interference",)),
        (0.20, "refuted", ("shared_cost",)),
        (-0.40, "undetermined", ("gain_of_stack",)),
    ],
)
def test_h4(stack: float, outcome: str, conclusions: tuple[str, ...]) -> None:
    found = verdicts({"mooncake_both": tax(0.25), "lmcache_only": tax(0.15), STACK: tax(stack)})["H4"]
    assert (found.outcome, found.conclusions) == (outcome, conclusions)
    assert found.numbers.excess_over_stack.point == pytest.approx((stack - 0.4) / abs(stack))


@pytest.mark.parametrize("point", [0.004, -0.004])
def test_h4_is_open_where_the_stack_is_inside_the_noise(point: float) -> None:
    """As ``(whole - sum) / whole`` its excess would be anything: its parts add up to many times the stack's estimate."""
    found = verdicts({"mooncake_both": tax(0.03), "lmcache_only": tax(0.02), STACK: normal(point, 0.02)})[
        "H4"
    ]
    assert (found.outcome, found.conclusions, found.p_value) == ("undetermined", ("no_tax_of_stack",), None)
    excess = found.numbers.excess_over_stack
    assert (excess.point, excess.low, excess.high) == (None, None, None)
    assert excess.reason == "no_tax"


def test_stacks_of_other_connectors_are_checked_for_additivity() -> None:
    found = judged({"a": tax(0.1), "b": tax(0.1), "both": tax(0.2)}, stacks={"both": ("a", "b")})
    assert next(v for v in found if v.id == "H4" and v.subject == "both").conclusions == ("additive",)


def test_h5_is_the_slope_over_doublings() -> None:
    """10, 20 and 30 % at 512, 1024 and 2048 tokens: ten points per doubling."""
    lengths = {512: tax(0.1), 1024: tax(0.2), 2048: tax(0.3)}
    found = verdicts({"mooncake_both": tax(0.2)}, by_input=trend(lengths))["H5"]
    assert found.outcome == "supported"
    assert found.conclusions == ("monotonic",)
    assert found.numbers.slope_per_doubling.point == pytest.approx(0.1)
    one = verdicts({"mooncake_both": tax(0.3)}, by_input=trend({512: tax(0.3)}))["H5"]
    assert (one.outcome, one.missing) == ("not testable", (Missing("one_length", "mooncake_both"),))


@pytest.mark.parametrize(
    ("points", "outcome", "conclusions"),
    [
        ((0.1, 0.3, 0.2), "undetermined", ("not_monotonic",)),
        ((0.1, None, 0.3), "undetermined", ("lengths_missing",)),
        ((0.1, 0.1, 0.3), "undetermined", ("not_monotonic",)),
        ((0.3, 0.1, 0.2), "refuted", ("not_monotonic",)),
        ((0.3, None, 0.1), "refuted", ("falling",)),
        ((0.3, 0.2, 0.1), "refuted", ("falling",)),
    ],
)
def test_a_tax_grows_only_in_order_and_with_every_length(
    points: tuple[float | None, ...], outcome: str, conclusions: tuple[str, ...]
) -> None:
    """Each slope's interval lies on one side of zero; it alone decides against growth, and not for it."""
    lengths = {
        k: Estimate(None, np.empty(0), 0, "lost to failures") if p is None else tax(p)
        for k, p in zip((512, 4096, 32768), points, strict=True)
    }
    found = verdicts({"mooncake_both": tax(0.2)}, by_input=trend(lengths))["H5"]
    low, high = found.numbers.slope_per_doubling.low, found.numbers.slope_per_doubling.high
    assert low > 0 or high < 0
    assert (found.outcome, found.conclusions) == (outcome, conclusions)
    assert (found.numbers.by_length["4096"].reason == "lost to failures") == (points[1] is None)


def h6(shapes: dict[tuple[int, int], Tax]) -> Hypothesis:
    by_output = {"mooncake_both": trend_of(shapes, queueing_allowed=False)}
    return verdicts({"mooncake_both": tax(0.2)}, by_output=by_output)["H6"]


def test_h6_says_over_which_input_lengths_it_is_averaged() -> None:
    """At 32768 tokens nobody kept up with outputs of 1024: that input length is in none of the three means."""
    found = h6({
        (o, i): tax_of_shape(
            tax(0.1 if i == 32768 else 0.01 * n), overloaded=("own",) if (i, o) == (32768, 1024) else ()
        )
        for n, o in enumerate((64, 256, 1024), start=1)
        for i in (512, 4096, 32768)
    })  # fmt: skip
    assert (found.outcome, found.numbers.averaged_over) == ("supported", (512, 4096))
    assert [n.point for n in found.numbers.by_length.values()] == pytest.approx([0.01, 0.02, 0.03])
    assert found.numbers.left_out == {"32768": {"1024": "overloaded"}}
    assert found.numbers.rates_per_s == {"64": (2.0,), "256": (2.0,), "1024": (2.0,)}


def test_h6_is_refuted_by_a_falling_tax() -> None:
    lengths = {64: tax(0.3), 256: tax(0.2), 1024: tax(0.1)}
    assert verdicts({"mooncake_both": tax(0.2)}, by_output=trend(lengths))["H6"].outcome == "refuted"


def test_a_length_that_plain_lost_is_said_to_be_plains() -> None:
    found = h6({
        (512, 64): tax_of_shape(tax(0.3)),
        (1024, 64): tax_of_shape(unavailable("no_cell", subject="plain")),
        (2048, 64): tax_of_shape(tax(0.3), overloaded=("plain",)),
        (4096, 64): tax_of_shape(tax(0.3), overloaded=("own", "plain")),
    })  # fmt: skip
    assert found.missing == (
        Missing("no_cell", "plain, 1024"),
        Missing("overloaded", "plain, 2048"),
        Missing("overloaded", "mooncake_both, 4096"),
    )


def test_a_trend_over_cells_that_did_not_keep_up_says_so() -> None:
    shapes = {
        (k, 64): tax_of_shape(tax(p), overloaded=("own",) if k == 32768 else ())
        for k, p in ((512, 0.1), (4096, 0.2), (32768, 0.9))
    }
    by_input = {"mooncake_both": trend_of(shapes, queueing_allowed=True)}
    found = verdicts({"mooncake_both": tax(0.2)}, by_input=by_input)["H5"]
    assert found.outcome == "supported"
    assert (found.numbers.queueing, found.n_blocks) == ((32768,), 1)


WITHOUT_MOONCAKE = {"nixl_both": tax(0.02), "noop_connector": tax(0.01)}
ABSENT = {"mooncake_both": "skipped: no module mooncake", "lmcache_only": "skipped", STACK: "skipped"}


def test_a_skipped_configuration_makes_its_hypotheses_not_testable() -> None:
    """Never absent: each of the six has a line, with the reason of the skip."""
    found = judged(WITHOUT_MOONCAKE, absent=ABSENT)
    main = [v for v in found if v.subject in ("mooncake_both", STACK)]
    assert [v.id for v in main] == ["H1", "H2", "H3", "H4", "H5", "H6"]
    assert all(v.outcome == "not testable" for v in main)
    assert ("H3", "nixl_both") in {(v.id, v.subject) for v in found if v.outcome != "not testable"}


def test_coupling_is_said_of_what_was_replayed_alone() -> None:
    """Mooncake was not measured; NIXL's 38 % was replayed, and the no-op connector was not."""
    found = judged(WITHOUT_MOONCAKE, absent=ABSENT)
    labels = {v.subject: v.conclusions for v in found if v.id == "H1" and v.outcome == "refuted"}
    assert labels == {"nixl_both": ("coupling",), "noop_connector": ()}


def test_plain_with_a_connectors_settings_stands_in_for_no_connector() -> None:
    """It is a baseline; a verdict on it would only make Holm's correction of the others dearer."""
    found = judged({"nixl_both": tax(0.2), "plain_matched_nixl_both": tax(0.15)})
    assert "plain_matched_nixl_both" not in {v.subject for v in found}


def above(threshold: float) -> Callable[[float | None, float | None], bool]:
    return lambda low, high: low is not None and low > threshold


def test_p_is_that_of_a_normal_estimate() -> None:
    """Against scipy: an estimate of 0.3 with a standard error of 0.1 against 0.08 is 2.2 standard errors away."""
    assert p_of(normal(0.3, 0.1), 0.95, above(0.08)) == pytest.approx(2 * norm.sf(2.2), rel=0.05)
    assert p_of(normal(0.3, 0.1), 0.8, above(0.1)) == pytest.approx(2 * norm.sf(2.0), rel=0.05)


def test_p_of_few_blocks_is_students() -> None:
    """Resamples as far apart as Student's t with four degrees of freedom is at 95 %; at 99.5 % it lies farther out than they do."""
    found = replace(normal(0.3, 0.05 * student_factor(4, 0.95)), freedom=4.0)
    for distance in (0.20, 0.30):
        by_scipy = 2 * student.sf(distance / 0.05, 4)
        assert p_of(found, 0.95, above(0.3 - distance)) == pytest.approx(by_scipy, rel=0.1)


@pytest.mark.parametrize(("draws", "confidence"), [(200, 0.8), (401, 0.95), (401, 0.99)])
def test_p_and_interval_decide_alike_at_the_border(draws: int, confidence: float) -> None:
    """Thresholds between any two resamples near the end of the interval, and on the resamples."""
    found = replace(normal(0.3, 0.1, draws), freedom=5.0, confidence=confidence)
    ends = np.sort(found.replicates)[: draws // 5]
    low, _ = found.interval(confidence)
    for threshold in (*ends, *((ends[1:] + ends[:-1]) / 2)):
        p = p_of(found, confidence, above(threshold))
        assert (p is not None) == (low > threshold)
        assert p is None or p <= 1 - confidence


def test_resamples_that_could_be_anything_decide_nothing() -> None:
    """20 of 1,000 are on either side: at 95 % they hide the end, at 50 % they do not."""
    replicates = np.array([np.nan] * 40 + [0.5] * 960)
    assert p_of(Estimate(0.5, replicates, 200), 0.95, above(0.0)) is None
    assert p_of(Estimate(0.5, replicates, 200), 0.5, above(0.0)) == pytest.approx(0.08, abs=0.002)
    assert p_of(Estimate(None, np.empty(0), 200), 0.95, above(0.0)) is None


def test_what_is_open_has_no_p() -> None:
    """Whether an interval holds the threshold, there is no tax to split, a sequence is not monotonic, or a stack is inside the noise."""
    headline = {
        "mooncake_both": tax(0.1, 0.05),
        "nixl_both": tax(0.03),
        "lmcache_only": tax(0.0),
        STACK: tax(0.001),
    }
    lengths = {512: tax(0.1), 1024: tax(0.3), 2048: tax(0.2)}
    open_ones = verdicts(headline, by_input=trend(lengths))
    no_tax = verdicts({"mooncake_both": tax(0.0, 0.02), "noop_connector": tax(0.5)})["H3"]
    found = [open_ones[h] for h in ("H1", "H2", "H4", "H5")] + [no_tax]
    assert {v.outcome for v in found} == {"undetermined"}
    assert {(v.p_value, v.p_holm) for v in found} == {(None, None)}


def test_the_p_of_a_share_is_no_smaller_than_that_of_the_tax_it_is_of() -> None:
    """H3: no-op costs nothing to speak of, and the connector's own tax is told from zero just so."""
    own = normal(0.22, 0.1)
    found = verdicts({"mooncake_both": own, "noop_connector": normal(-0.5, 0.01)})["H3"]
    assert found.outcome == "supported"
    assert found.p_value == pytest.approx(p_of(own, 0.95, above(0.0)))


def test_p_values_are_adjusted_for_one_another() -> None:
    """Holm by hand: the smallest times how many were tested, the next times one less, never falling; what stayed open counts, too."""
    headline = {"mooncake_both": (0.4, 0.1), "nixl_both": (0.1, 0.01), "noop_connector": (-0.1, 0.1)}
    found = verdicts({config: normal(*of) for config, of in headline.items()})
    assert {h for h, v in found.items() if v.outcome != "not testable"} == {"H1", "H2", "H3"}
    assert found["H2"].p_value is not None and found["H3"].p_value is not None
    in_order = sorted((v for v in found.values() if v.p_value is not None), key=lambda v: v.p_value or 0.0)
    by_hand, largest = [], 0.0
    for own, times in zip(in_order, (3, 2, 1), strict=False):
        largest = max(largest, min(1.0, times * (own.p_value or 0.0)))
        by_hand.append(largest)
    assert [v.p_holm for v in in_order] == by_hand
    assert found["H4"].p_holm is None


NOT = "undetermined"
# Ends -> what they say of zero, of a threshold of 0.1 and of the range from 0.05 to 0.1, whether it grows, the label of a share and of the prior.
OPEN: dict[tuple[float | None, float | None], tuple[str | bool | None, ...]] = {
    (0.7, None): ("tax", "above", "refuted", "supported", "framework_dominates", True),
    (0.02, None): ("tax", NOT, NOT, "supported", None, False),
    (None, 0.2): (NOT, NOT, NOT, NOT, "implementation_dominates", True),
    (None, -0.1): ("gain", "below", "refuted", "refuted", "implementation_dominates", True),
    (-0.1, None): (NOT, NOT, NOT, NOT, None, False),
    (None, None): (NOT, NOT, NOT, NOT, None, False),
}


@pytest.mark.parametrize("ends", OPEN, ids=str)
def test_the_end_that_is_known_decides_alone(ends: tuple[float | None, float | None]) -> None:
    """Requests that failed can make the open end only larger; they are no reason to doubt the other."""
    found: Any = SimpleNamespace(point=0.3, interval=lambda _: ends)
    assert (
        effect_of(*ends),
        against(0.1, *ends, above="above", below="below"),
        inside((0.05, 0.1), *ends),
        grows(*ends),
        dominated(*ends),
        prior_label(found, 0.95) == "prior_revised",
    ) == OPEN[ends]
    closed = [effect_of(*e) for e in ((0.1, 0.2), (-0.2, -0.1), (-0.1, 0.1), (0.0, 0.1))]
    assert closed == ["tax", "gain", "no_tax_found", "no_tax_found"]


SOUND = {
    "noop_connector": tax(0.05),
    "mooncake_both": tax(0.3),
    "nixl_both": tax(0.2),
    "lmcache_only": tax(0.1),
}


def test_no_hypothesis_takes_an_open_tax_for_none() -> None:
    own = {"mooncake_both": tax(0.05, 0.4, lost=0.1), STACK: tax(0.2, 0.4, lost=0.1)}
    found = verdicts(SOUND | own)
    assert [found[h].outcome for h in ("H1", "H2", "H3", "H4")] == ["undetermined"] * 4
    assert found["H4"].conclusions == ("tax_of_stack_unknown",)
    opened = [found["H1"].numbers.tax_ttft_p90, found["H2"].numbers.gap, found["H4"].numbers.tax_stack]
    for number in opened:
        assert number is not None and number.high is None
        assert number.reason == "reaches_failed"


def test_the_known_end_of_a_gap_has_its_label_and_failed_requests_do_not_hide_it() -> None:
    found = verdicts(SOUND | {"mooncake_both": tax(0.9, lost=0.1)})
    assert (found["H1"].outcome, found["H1"].numbers.tax_ttft_p90.high) == ("supported", None)
    assert (found["H2"].outcome, found["H2"].conclusions) == ("refuted", ("larger_than_replay",))
    found = verdicts(SOUND | {"mooncake_both": tax(0.27, lost=0.1)})
    assert (found["H2"].outcome, found["H2"].conclusions) == ("undetermined", ())


def test_plains_failed_requests_leave_no_lower_end() -> None:
    """A ratio to what never came is not -100 %."""
    found = relative(tax(120.0, 1.0), tax(100.0, 1.0, lost=0.1))
    assert found.interval(0.95)[0] is None
    assert verdict(found, 0.95) == "undetermined"


def test_the_row_of_an_open_tax_has_its_reason() -> None:
    place = ("nixl_both", "ref_safe", "a", spec_of(1.0, 8, 8), "ttft_p90")
    row = Tax(*place, tax(0.3, lost=0.1), 200, 200).row(0.95)  # type: ignore[arg-type]
    assert (row.verdict, row.n_blocks, row.reason) == ("tax", 1, "reaches_failed")
    assert Tax(*place, tax(0.3), 200, 200).row(0.95).reason is None  # type: ignore[arg-type]
