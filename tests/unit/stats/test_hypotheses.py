"""Verdicts worked out by hand: supported, refuted, undetermined, not testable."""

import numpy as np
import pytest
from scipy.stats import norm

from connector_tax.intervals.bootstrap import Estimate
from connector_tax.stats.hypotheses import Evidence, Verdict, judge_hypotheses, p_value


def tax(point: float, half_width: float = 0.01) -> Estimate:
    """A tax with an interval of about ``point`` plus or minus ``half_width``, independent of the others."""
    replicates = np.linspace(point - half_width, point + half_width, 401)
    seed = round(1e6 * (point + half_width))
    return Estimate(point, np.random.default_rng(seed).permutation(replicates), 200)


def verdicts(headline: dict[str, Estimate], **more: object) -> dict[str, Verdict]:
    values = {"by_input": {}, "by_output": {}, "absent": {}, "stacks": {}, **more}
    return {
        v.id: v for v in reversed(judge_hypotheses(Evidence(headline=headline, confidence=0.95, **values)))
    }  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "width", "outcome", "label"),
    [
        (0.45, 0.01, "supported", "prior 45% kept"),
        (0.12, 0.01, "supported", "prior 45% revised to 12.0%"),
        (0.05, 0.01, "refuted", "prior 45% revised to 5.0%"),
        (0.11, 0.05, "undetermined", "prior 45% revised to 11.0%"),
    ],
)
def test_h1(value: float, width: float, outcome: str, label: str) -> None:
    found = verdicts({"mooncake_both": tax(value, width)})["H1"]
    assert (found.outcome, found.label) == (outcome, label)


@pytest.mark.parametrize(
    ("gap", "outcome"),
    [(0.07, "supported"), (0.02, "refuted"), (-0.08, "refuted"), (0.05, "undetermined"), (0.2, "refuted")],
)
def test_h2(gap: float, outcome: str) -> None:
    found = verdicts({"mooncake_both": tax(0.3 + gap), "nixl_both": Estimate(0.3, np.full(401, 0.3), 200)})
    assert found["H2"].outcome == outcome


@pytest.mark.parametrize(
    ("noop", "outcome", "label"),
    [
        (0.04, "supported", "implementation-cost-dominated"),
        (0.15, "supported", "mixed"),
        (0.30, "refuted", "framework-cost-dominated"),
        (0.20, "undetermined", "framework-cost-dominated"),
    ],
)
def test_h3(noop: float, outcome: str, label: str) -> None:
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
    found = verdicts({"mooncake_both": tax(0.2)}, by_input={"mooncake_both": lengths})["H5"]
    assert found.outcome == "supported"
    assert found.label == "monotonic"
    assert found.numbers["slope_per_doubling"]["point"] == pytest.approx(0.1)


def test_a_trend_over_cells_that_did_not_keep_up_says_so() -> None:
    lengths = {512: tax(0.1), 4096: tax(0.2), 32768: tax(0.9)}
    overloaded = {"TTFT p90": {"mooncake_both": frozenset({32768})}}
    given = {"by_input": {"mooncake_both": lengths}, "overloaded": overloaded}
    found = verdicts({"mooncake_both": tax(0.2)}, **given)["H5"]
    assert found.outcome == "supported"
    assert found.sentence.endswith(
        "At 32768 tokens plain or mooncake_both did not keep up, so what grows there may be queueing."
    )
    calm = verdicts({"mooncake_both": tax(0.2)}, by_input={"mooncake_both": lengths})["H5"]
    assert "queueing" not in calm.sentence


def test_one_length_makes_no_trend() -> None:
    found = verdicts({"mooncake_both": tax(0.3)}, by_input={"mooncake_both": {512: tax(0.3)}})["H5"]
    assert found.outcome == "not testable"
    assert "only one input length was measured, 512 tokens" in found.sentence


def test_h6_is_refuted_by_a_falling_tax() -> None:
    lengths = {64: tax(0.3), 256: tax(0.2), 1024: tax(0.1)}
    found = verdicts({"mooncake_both": tax(0.2)}, by_output={"mooncake_both": lengths})["H6"]
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
