"""Verdicts worked out by hand: supported, refuted, undetermined, not testable."""

import re
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from connector_tax.intervals.bootstrap import Estimate
from connector_tax.stats.hypotheses import Evidence, Verdict, judge_hypotheses
from connector_tax.stats.p_values import p_value
from connector_tax.stats.trends import ShapeTax, Trend, trend_of


def tax(point: float, half_width: float = 0.01) -> Estimate:
    """A tax with an interval of about ``point`` plus or minus ``half_width``, independent of the others."""
    replicates = np.linspace(point - half_width, point + half_width, 401)
    seed = round(1e6 * (point + half_width))
    return Estimate(point, np.random.default_rng(seed).permutation(replicates), 200)


def trend(lengths: dict[int, Estimate]) -> dict[str, Trend]:
    """Of Mooncake, with one other length and one rate."""
    shapes = [ShapeTax(k, 64, 2.0, e) for k, e in lengths.items()]
    return {"mooncake_both": trend_of(shapes, queueing_allowed=True)}


def verdicts(headline: dict[str, Estimate], **more: object) -> dict[str, Verdict]:
    values = {"by_input": {}, "by_output": {}, "absent": {}, "stacks": {}, **more}
    return {
        v.id: v for v in reversed(judge_hypotheses(Evidence(headline=headline, confidence=0.95, **values)))
    }  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "width", "outcome", "label"),
    [
        (0.45, 0.01, "supported", "prior 45% kept"),
        (0.12, 0.02, "supported", "prior 45% revised to 12.0% [10.1%, 13.9%]"),
        (0.05, 0.02, "refuted", "coupling; prior 45% revised to 5.0% [3.1%, 6.9%]"),
        (0.047, 0.07, "undetermined", None),
        (0.24, 0.58, "undetermined", None),
        (0.24, 0.05, "supported", None),
    ],
)
def test_h1(value: float, width: float, outcome: str, label: str | None) -> None:
    """The prior is kept or revised by the whole interval, and where nothing is decided no word is said about it."""
    found = verdicts({"mooncake_both": tax(value, width)})["H1"]
    assert (found.outcome, found.label) == (outcome, label)


@pytest.mark.parametrize(
    ("gap", "outcome", "label"),
    [
        (0.07, "supported", None),
        (0.02, "refuted", "smaller"),
        (-0.005, "refuted", "smaller"),
        (-0.08, "refuted", "inverted"),
        (0.05, "undetermined", None),
        (0.10, "undetermined", None),
        (0.2, "refuted", "larger than in the replay"),
    ],
)
def test_h2(gap: float, outcome: str, label: str | None) -> None:
    """Inverted only where the whole interval is below zero."""
    found = verdicts({"mooncake_both": tax(0.3 + gap), "nixl_both": Estimate(0.3, np.full(401, 0.3), 200)})
    assert (found["H2"].outcome, found["H2"].label) == (outcome, label)
    assert (label or "undetermined" if outcome != "supported" else outcome) in found["H2"].sentence


def test_coupling_is_said_of_what_was_replayed_alone() -> None:
    """Mooncake was not measured; NIXL's 38 % was replayed, and the no-op connector was not."""
    found = judge_hypotheses(
        replace(_evidence_without_mooncake(), headline={"nixl_both": tax(0.02), "noop_connector": tax(0.01)})
    )
    labels = {v.subject: v.label for v in found if v.id == "H1" and v.outcome == "refuted"}
    assert labels == {"nixl_both": "coupling", "noop_connector": None}


@pytest.mark.parametrize(
    ("noop", "outcome", "label"),
    [
        (0.04, "supported", "implementation-cost-dominated"),
        (0.15, "supported", "mixed"),
        (0.30, "refuted", "framework-cost-dominated"),
        (0.20, "undetermined", None),
        (0.115, "supported", None),
    ],
)
def test_h3(noop: float, outcome: str, label: str | None) -> None:
    """A label holds for the whole interval of the share, or is not given."""
    found = verdicts({"mooncake_both": tax(0.40, 0.02), "noop_connector": tax(noop)})["H3"]
    assert (found.outcome, found.label) == (outcome, label)


def test_h3_has_nothing_to_split_without_a_tax() -> None:
    found = verdicts({"mooncake_both": tax(0.0, 0.05), "noop_connector": tax(0.0)})["H3"]
    assert (found.outcome, found.label) == ("undetermined", "no tax to split")


@pytest.mark.parametrize(
    ("stack", "outcome", "label"),
    [
        (0.40, "supported", "additive"),
        (0.80, "refuted", "super-additive: interference"),
        (0.20, "refuted", "sub-additive: shared cost"),
    ],
)
def test_h4(stack: float, outcome: str, label: str) -> None:
    found = verdicts(
        {"mooncake_both": tax(0.25), "lmcache_only": tax(0.15), "multi_mooncake_lmcache": tax(stack)}
    )
    assert (found["H4"].outcome, found["H4"].label) == (outcome, label)


def test_h4_is_open_where_the_stack_is_inside_the_noise() -> None:
    found = verdicts(
        {"mooncake_both": tax(0.0), "lmcache_only": tax(0.0), "multi_mooncake_lmcache": tax(0.0, 0.1)}
    )
    assert found["H4"].outcome == "undetermined"


def test_h5_is_the_slope_over_doublings() -> None:
    """10, 20 and 30 % at 512, 1024 and 2048 tokens: ten points per doubling."""
    lengths = {512: tax(0.1), 1024: tax(0.2), 2048: tax(0.3)}
    found = verdicts({"mooncake_both": tax(0.2)}, by_input=trend(lengths))["H5"]
    assert found.outcome == "supported"
    assert found.label == "monotonic"
    assert found.numbers["slope_per_doubling"]["point"] == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("points", "outcome", "label"),
    [
        ((0.1, 0.3, 0.2), "undetermined", "not monotonic"),
        ((0.1, None, 0.3), "undetermined", "1 of 3 input lengths lost"),
        ((0.1, 0.1, 0.3), "undetermined", "not monotonic"),
        ((0.3, 0.1, 0.2), "refuted", "not monotonic"),
        ((0.3, None, 0.1), "refuted", "monotonically falling"),
        ((0.3, 0.2, 0.1), "refuted", "monotonically falling"),
    ],
)
def test_a_tax_grows_only_in_order_and_with_every_length(
    points: tuple[float | None, ...], outcome: str, label: str
) -> None:
    """Each slope's interval lies on one side of zero; it alone decides against growth, and not for it."""
    lengths = {
        k: Estimate(None, np.empty(0), 0, "lost to failures") if p is None else tax(p)
        for k, p in zip((512, 4096, 32768), points, strict=True)
    }
    found = verdicts({"mooncake_both": tax(0.2)}, by_input=trend(lengths))["H5"]
    low, high = found.numbers["slope_per_doubling"]["low"], found.numbers["slope_per_doubling"]["high"]
    assert low > 0 or high < 0
    assert (found.outcome, found.label) == (outcome, label)
    assert "growing: undetermined (" in found.sentence or outcome == "refuted"
    assert ("4096 lost: lost to failures" in found.sentence) == (points[1] is None)


def test_each_length_is_printed_with_its_rate_where_rates_differ() -> None:
    """The same trend at one rate names none."""
    points = {512: (0.031, 2.0), 4096: (0.035, 2.0), 32768: (0.04, 0.25)}
    shapes = [ShapeTax(k, o, rate, tax(p, 0.001)) for k, (p, rate) in points.items() for o in (64, 256)]
    for allowed, name in ((True, "by_input"), (False, "by_output")):
        given = {name: {"mooncake_both": trend_of(shapes, queueing_allowed=allowed)}}
        found = verdicts({"mooncake_both": tax(0.2)}, **given)["H5" if allowed else "H6"]
        values = r"\(512: 3.1% \[3.0%, 3.2%\] \(2 req/s\), 4096: 3.5% \[3.4%, 3.6%\] \(2 req/s\), 32768: 4.0% \[3.9%, 4.1%\] \(0.25 req/s\)\)"
        assert re.search(values, found.sentence)
        assert found.numbers["rates_per_s"] == {"512": [2.0], "4096": [2.0], "32768": [0.25]}
    same = [replace(s, rate_per_s=2.0) for s in shapes]
    given = {"by_input": {"mooncake_both": trend_of(same, queueing_allowed=True)}}
    assert "req/s" not in verdicts({"mooncake_both": tax(0.2)}, **given)["H5"].sentence


def test_h6_says_over_which_input_lengths_it_is_averaged() -> None:
    """At 32768 tokens nobody kept up with outputs of 1024: that input length is in none of the three means."""
    shapes = [
        ShapeTax(o, i, 2.0, tax(0.1 if i == 32768 else 0.01 * n), (i, o) == (32768, 1024))
        for n, o in enumerate((64, 256, 1024), start=1)
        for i in (512, 4096, 32768)
    ]
    given = {"by_output": {"mooncake_both": trend_of(shapes, queueing_allowed=False)}}
    found = verdicts({"mooncake_both": tax(0.2)}, **given)["H6"]
    assert (found.outcome, found.numbers["averaged_over"]) == ("supported", [512, 4096])
    assert [n["point"] for n in found.numbers["by_length"].values()] == pytest.approx([0.01, 0.02, 0.03])
    assert "averaged over input lengths 512, 4096 (32768 left out: " in found.sentence
    assert "did not keep up at 1024" in found.numbers["left_out"]["32768"]


def test_a_trend_over_cells_that_did_not_keep_up_says_so() -> None:
    shapes = [ShapeTax(k, 64, 2.0, tax(p), k == 32768) for k, p in ((512, 0.1), (4096, 0.2), (32768, 0.9))]
    given = {"by_input": {"mooncake_both": trend_of(shapes, queueing_allowed=True)}}
    found = verdicts({"mooncake_both": tax(0.2)}, **given)["H5"]
    assert found.outcome == "supported"
    assert found.sentence.endswith(
        "At 32768 tokens plain or mooncake_both did not keep up, so what grows there may be queueing. "
        "This is of one launch each: what launches differ by is not in the interval."
    )
    calm = verdicts(
        {"mooncake_both": tax(0.2)}, by_input=trend({512: tax(0.1), 4096: tax(0.2), 32768: tax(0.9)})
    )
    assert "queueing" not in calm["H5"].sentence


def test_one_length_makes_no_trend() -> None:
    found = verdicts({"mooncake_both": tax(0.3)}, by_input=trend({512: tax(0.3)}))["H5"]
    assert found.outcome == "not testable"
    assert "only one input length was measured, 512 tokens" in found.sentence


def test_h6_is_refuted_by_a_falling_tax() -> None:
    lengths = {64: tax(0.3), 256: tax(0.2), 1024: tax(0.1)}
    found = verdicts({"mooncake_both": tax(0.2)}, by_output=trend(lengths))["H6"]
    assert found.outcome == "refuted"


def test_a_skipped_configuration_makes_its_hypotheses_not_testable() -> None:
    """Never absent: each of the six has a line, with the reason of the skip."""
    found = verdicts({"nixl_both": tax(0.1)}, absent={"mooncake_both": "skipped: no module mooncake"})
    main = [
        v
        for v in judge_hypotheses(_evidence_without_mooncake())
        if v.subject in ("mooncake_both", "multi_mooncake_lmcache")
    ]
    assert [v.id for v in main] == ["H1", "H2", "H3", "H4", "H5", "H6"]
    assert all(v.outcome == "not testable" for v in main)
    assert found["H2"].outcome == "not testable"


def test_without_mooncake_the_others_are_asked() -> None:
    found = judge_hypotheses(_evidence_without_mooncake())
    assert {(v.id, v.subject) for v in found if v.outcome != "not testable"} >= {
        ("H1", "nixl_both"),
        ("H3", "nixl_both"),
    }


def _evidence_without_mooncake() -> Evidence:
    return Evidence(
        headline={"nixl_both": tax(0.2), "noop_connector": tax(0.02)},
        by_input={},
        by_output={},
        absent={
            "mooncake_both": "skipped: no module mooncake",
            "lmcache_only": "skipped",
            "multi_mooncake_lmcache": "skipped",
        },
        stacks={},
        confidence=0.95,
    )


def test_stacks_of_other_connectors_are_checked_for_additivity() -> None:
    found = judge_hypotheses(
        Evidence(
            headline={"a": tax(0.1), "b": tax(0.1), "both": tax(0.2)},
            by_input={},
            by_output={},
            absent={},
            stacks={"both": ("a", "b")},
            confidence=0.95,
        )
    )
    assert next(v for v in found if v.id == "H4" and v.subject == "both").label == "additive"


def normal(point: float, sd: float, draws: int = 40_000) -> Estimate:
    return Estimate(point, np.random.default_rng(5).normal(point, sd, draws), 200)


def test_p_is_that_of_a_normal_estimate() -> None:
    """Against scipy: an estimate of 0.3 with a standard error of 0.1 against 0.1 is two standard errors away."""
    assert p_value(normal(0.3, 0.1), 0.1) == pytest.approx(2 * norm.sf(2.0), rel=0.05)
    assert p_value(normal(0.0, 0.1), 0.1) == pytest.approx(2 * norm.sf(1.0), rel=0.05)


def test_p_is_below_five_percent_where_the_interval_excludes_the_threshold() -> None:
    """One statement made twice: the interval and its p."""
    for point in np.linspace(-0.3, 0.5, 33):
        estimate = normal(float(point), 0.1)
        low, high = estimate.interval(0.95)
        p = p_value(estimate, 0.1)
        assert low is not None and high is not None and p is not None
        if abs(p - 0.05) > 0.002:
            assert (p < 0.05) == (not low <= 0.1 <= high)


def test_resamples_that_could_be_anything_decide_nothing() -> None:
    replicates = np.array([np.nan] * 20 + [0.5] * 80)
    assert p_value(Estimate(0.5, replicates, 200), 0.0) == pytest.approx(2 * 21 / 101)
    assert p_value(Estimate(None, replicates, 200), 0.0) is None


def test_p_values_are_adjusted_for_one_another() -> None:
    """Holm by hand: the smallest times how many there are, the next times one less, never falling."""
    found = verdicts(
        {
            "mooncake_both": normal(0.3, 0.1),
            "nixl_both": normal(0.1, 0.1),
            "noop_connector": normal(0.02, 0.1),
        }
    )
    decided = {i: v for i, v in found.items() if v.p_value is not None}
    assert set(decided) == {"H1", "H2", "H3"}
    in_order = sorted(decided.values(), key=lambda v: v.p_value or 0.0)
    by_hand, largest = [], 0.0
    for verdict, times in zip(in_order, (3, 2, 1), strict=True):
        largest = max(largest, min(1.0, times * (verdict.p_value or 0.0)))
        by_hand.append(largest)
    assert [v.p_holm for v in in_order] == by_hand
    assert found["H4"].p_holm is None
