"""An interval with an open end decides what its other end holds, and nothing else, wherever it is asked."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from connector_tax.base.documents.aggregate import Hypothesis
from connector_tax.base.statistics.bootstrap import Estimate
from connector_tax.base.statistics.outcomes import against, effect_of, grows, inside
from connector_tax.read.stats.hypotheses import Evidence, dominated, judge_hypotheses, prior_label
from connector_tax.read.stats.taxes import Tax, relative, verdict

sys.path.insert(0, str(Path(__file__).parents[2]))
from specs import spec_of

# Ends -> what they say of zero, of a threshold of 0.1 and of the range from 0.05 to 0.1, whether it grows, the label of a share and of the prior.
OPEN = {
    (0.7, None): ("tax", "above", "refuted", "supported", "framework_dominates", True),
    (0.02, None): ("tax", "undetermined", "undetermined", "supported", None, False),
    (None, 0.2): (
        "undetermined",
        "undetermined",
        "undetermined",
        "undetermined",
        "implementation_dominates",
        True,
    ),
    (None, -0.1): ("gain", "below", "refuted", "refuted", "implementation_dominates", True),
    (-0.1, None): ("undetermined", "undetermined", "undetermined", "undetermined", None, False),
    (None, None): ("undetermined", "undetermined", "undetermined", "undetermined", None, False),
}
STACK = "multi_mooncake_lmcache"


def estimate(point: float, half: float, *, lost: float = 0.0, towards: float = np.inf) -> Estimate:
    """Resamples evenly around it; of the share ``lost`` the last met requests that failed."""
    values = np.linspace(point - half, point + half, 1000)
    if lost:
        values[-round(1000 * lost) :] = towards
    return Estimate(point, values, 200)


@pytest.mark.parametrize("ends", OPEN, ids=str)
def test_the_end_that_is_known_decides_alone(ends: tuple[float | None, float | None]) -> None:
    """Requests that failed can make the open end only larger; they are no reason to doubt the other."""
    tax: Any = SimpleNamespace(point=0.3, interval=lambda _: ends)
    prior = prior_label(tax, 0.95) == "prior_revised"
    assert (
        effect_of(*ends),
        against(0.1, *ends, above="above", below="below"),
        inside((0.05, 0.1), *ends),
        grows(*ends),
        dominated(*ends),
        prior,
    ) == OPEN[ends]


def test_a_closed_one_is_told() -> None:
    assert [effect_of(*e) for e in ((0.1, 0.2), (-0.2, -0.1), (-0.1, 0.1), (0.0, 0.1))] == [
        "tax",
        "gain",
        "no_tax_found",
        "no_tax_found",
    ]


def judged(**taxes: Estimate) -> dict[str, Hypothesis]:
    sound = {"noop_connector": 0.05, "mooncake_both": 0.3, "nixl_both": 0.2, "lmcache_only": 0.1, STACK: 0.4}
    headline = {c: estimate(v, 0.01) for c, v in sound.items()} | taxes
    found = judge_hypotheses(
        Evidence(headline, {}, {}, {}, {STACK: ("mooncake_both", "lmcache_only")}, 0.95, frozenset(headline))
    )
    return {v.id: v for v in found if v.subject in ("mooncake_both", STACK)}


def test_no_hypothesis_takes_an_open_tax_for_none() -> None:
    found = judged(mooncake_both=estimate(0.05, 0.4, lost=0.1), **{STACK: estimate(0.2, 0.4, lost=0.1)})
    assert [found[h].outcome for h in ("H1", "H2", "H3", "H4")] == ["undetermined"] * 4
    assert found["H3"].conclusions == ("tax_to_split_unknown",)
    assert found["H4"].conclusions == ("tax_of_stack_unknown",)
    opened = [found["H1"].numbers.tax_ttft_p90, found["H2"].numbers.gap, found["H4"].numbers.tax_stack]
    for number in opened:
        assert number is not None and number.high is None
        assert number.reason == "reaches_failed"


def test_failed_requests_do_not_hide_a_tax_that_the_others_show() -> None:
    found = judged(mooncake_both=estimate(0.3, 0.01, lost=0.1))
    tax = found["H1"].numbers.tax_ttft_p90
    assert found["H1"].outcome == "supported" and tax is not None and tax.high is None


def test_a_gain_and_nothing_are_told_apart_from_what_is_not_known() -> None:
    assert judged(**{STACK: estimate(-0.4, 0.01)})["H4"].conclusions == ("gain_of_stack",)
    assert judged(**{STACK: estimate(0.0, 0.1)})["H4"].conclusions == ("no_tax_of_stack",)
    assert judged(mooncake_both=estimate(0.0, 0.1))["H3"].conclusions == ("no_tax_to_split",)


def test_a_gap_has_the_label_that_its_known_end_holds() -> None:
    found = judged(mooncake_both=estimate(0.9, 0.01, lost=0.1))["H2"]
    assert (found.outcome, found.conclusions) == ("refuted", ("larger_than_replay",))
    found = judged(mooncake_both=estimate(0.27, 0.01, lost=0.1))["H2"]
    assert (found.outcome, found.conclusions) == ("undetermined", ())


def test_plains_failed_requests_leave_no_lower_end() -> None:
    """A ratio to what never came is not -100 %."""
    tax = relative(estimate(120.0, 1.0), estimate(100.0, 1.0, lost=0.1))
    assert tax.interval(0.95)[0] is None
    assert verdict(tax, 0.95) == "undetermined"


def test_the_row_of_an_open_tax_has_its_reason() -> None:
    place = ("nixl_both", "ref_safe", "a", spec_of(1.0, 8, 8), "ttft_p90")
    row = Tax(*place, estimate(0.3, 0.01, lost=0.1), 200, 200).row(0.95)
    assert (row.verdict, row.n_blocks) == ("tax", 1)
    assert row.reason == "reaches_failed"
    assert Tax(*place, estimate(0.3, 0.01), 200, 200).row(0.95).reason is None
