"""H1 to H6: supported, refuted, undetermined (the interval holds the threshold) or not testable.

Thresholds are those of the published experiment; ``docs/measurement.md`` lists them. Where Mooncake has
no numbers, H1, H3, H5 and H6 are also asked of the connectors that have; H2 and H4 are about pairs.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from connector_tax.base.documents.aggregate import (
    OF_ONE_LAUNCH,
    HypothesisId,
    Quantity,
    VerdictNumbers,
)
from connector_tax.base.records.connector import MATCHED
from connector_tax.base.statistics.bootstrap import Estimate, combine, unavailable
from connector_tax.base.statistics.outcomes import (
    GAIN,
    NO_TAX_FOUND,
    NOT_TESTABLE,
    REFUTED,
    SUPPORTED,
    TAX,
    UNDETERMINED,
    against,
    grows,
    inside,
    p_of_outcome,
)
from connector_tax.base.statistics.p_values import holm
from connector_tax.base.statistics.shares import share_of
from connector_tax.read.stats.labels import H3_SHARE, dominated, interval_text, prior_label
from connector_tax.read.stats.taxes import difference, unlike_kinds, verdict
from connector_tax.read.stats.trends import RISING, Trend, averaged_text, values_text, why_no_trend
from connector_tax.read.stats.verdicts import Evidence, Verdict

H1_THRESHOLD = 0.10
H2_RANGE = (0.05, 0.10)
H4_TOLERANCE = 0.30
MAIN, NOOP, NIXL = "mooncake_both", "noop_connector", "nixl_both"
STACK, STACKED = "multi_mooncake_lmcache", (MAIN, "lmcache_only")

METRIC_OF: dict[str, str] = {"H5": "TTFT p90", "H6": "TPOT p90"}
NOTHING_TO_SPLIT: dict[str, str] = {
    NO_TAX_FOUND: "no tax to split is found",
    GAIN: "a gain, so there is no tax to split",
}
NO_STACK: dict[str, str] = {
    NO_TAX_FOUND: "no tax of the stack is found",
    GAIN: "the stack has a gain",
    UNDETERMINED: "whether the stack has a tax is not known",
}
OTHER_LENGTH = {"input": "output", "output": "input"}


def judge_hypotheses(evidence: Evidence) -> list[Verdict]:
    """The six, about their own subjects, and about stand-ins where Mooncake has no numbers."""
    found = [
        _h1(evidence, MAIN),
        _h2(evidence, MAIN, _nixl(evidence)),
        _h3(evidence, MAIN),
        _h4(evidence, STACK, STACKED),
        _trend("H5", evidence, MAIN, evidence.by_input, "input"),
        _trend("H6", evidence, MAIN, evidence.by_output, "output"),
    ]
    if evidence.headline.get(MAIN) is None or evidence.headline[MAIN].point is None:
        for config in evidence.headline:
            if config == MAIN or config.startswith(MATCHED):
                continue
            found.append(_h1(evidence, config))
            if config != NOOP:
                found.append(_h3(evidence, config))
            found.append(_trend("H5", evidence, config, evidence.by_input, "input"))
            found.append(_trend("H6", evidence, config, evidence.by_output, "output"))
    for stack, parts in evidence.stacks.items():
        if stack != STACK and stack in evidence.headline:
            found.append(_h4(evidence, stack, parts))
    return _adjusted([_marked(verdict, evidence) for verdict in found])


def is_nixl(config: str) -> bool:
    """Whether it is NIXL alone, in any role and with its buffers anywhere."""
    return config.startswith("nixl_")


def _nixl(evidence: Evidence) -> str:
    """Return NIXL's configuration with a number, ``nixl_both`` first; where none has one, a member of the campaign."""
    known = [c for c, tax in evidence.headline.items() if is_nixl(c) and tax.point is not None]
    if NIXL in known:
        return NIXL
    return next(iter([*known, *sorted(filter(is_nixl, evidence.members))]), NIXL)


def _marked(found: Verdict, evidence: Evidence) -> Verdict:
    """With what its intervals hold; one that is of one launch says so in its sentence."""
    if found.outcome == NOT_TESTABLE:
        return found
    if found.outcome == UNDETERMINED and (reasons := _why_open(found)):
        found = replace(found, sentence=f"{found.sentence} Not all ends are known: {'; '.join(reasons)}.")
    asked = {"H2": {_nixl(evidence)}, "H3": {NOOP}, "H4": set(found.numbers.parts or ())}
    subjects = {found.subject, *asked.get(found.id, set())}
    # Phase B launches every configuration once.
    if found.id not in ("H5", "H6") and subjects <= evidence.over_blocks:
        return replace(found, kind="over blocks")
    sentence = f"{found.sentence} This is of one launch each: what launches differ by is not in the interval."
    return replace(found, kind=OF_ONE_LAUNCH, sentence=sentence)


def _why_open(found: Verdict) -> list[str]:
    """Why numbers that it is decided on have an open end; a share decides nothing where there is no tax to split."""
    share = found.numbers.share if found.label in NOTHING_TO_SPLIT.values() else None
    deciding = (n for n in found.numbers.quantities() if n is not share)
    return list(dict.fromkeys(n.reason for n in deciding if n.known and n.reason))


def _adjusted(verdicts: list[Verdict]) -> list[Verdict]:
    """For every verdict that numbers could have decided, whether they did or not."""
    tested = sum(v.outcome != NOT_TESTABLE for v in verdicts)
    p_values = holm([v.p_value for v in verdicts], tested)
    return [replace(v, p_holm=p) for v, p in zip(verdicts, p_values, strict=True)]


def _h1(evidence: Evidence, config: str) -> Verdict:
    missing = _untestable("H1", evidence, config, (config,))
    if missing:
        return missing
    tax = evidence.headline[config]
    judge = partial(against, H1_THRESHOLD, above=SUPPORTED, below=REFUTED)
    low, high = tax.interval(evidence.confidence)
    outcome = judge(low, high)
    # The replay on eight instances gave these two a tax: below 10 % here, it came from the instances' coupling.
    words = ["coupling"] if outcome == REFUTED and (config == MAIN or is_nixl(config)) else []
    if config == MAIN:
        words.append(prior_label(tax, evidence.confidence))
    return Verdict(
        "H1",
        config,
        outcome,
        "; ".join(words) or None,
        VerdictNumbers(tax_ttft_p90=_numbers(tax, evidence), threshold=H1_THRESHOLD),
        f"At ref_safe the TTFT p90 of {config} differs from plain's by {_percent(tax, evidence)}; "
        f"the threshold is {100 * H1_THRESHOLD:.0f} %: {outcome}.",
        p_of_outcome(tax, evidence.confidence, judge, outcome),
    )


def _h2(evidence: Evidence, first: str, second: str) -> Verdict:
    missing = _untestable("H2", evidence, first, (first, second))
    if missing:
        return missing
    gap = difference(evidence.headline[first], evidence.headline[second])
    judge = partial(inside, H2_RANGE)
    low, high = gap.interval(evidence.confidence)
    outcome = judge(low, high)
    label = None
    if low is not None and low > H2_RANGE[1]:
        label = "larger than in the replay"
    elif outcome == REFUTED and high is not None:
        label = "inverted" if high < 0 else "smaller"
    return Verdict(
        "H2",
        first,
        outcome,
        label,
        VerdictNumbers(gap=_numbers(gap, evidence), range=H2_RANGE),
        f"The tax of {first} minus that of {second} is {_points(gap, evidence)}; "
        f"5 to 10 points were expected from an earlier replay: {outcome}{f' ({label})' if label else ''}.",
        p_of_outcome(gap, evidence.confidence, judge, outcome),
    )


def _h3(evidence: Evidence, config: str) -> Verdict:
    missing = _untestable("H3", evidence, config, (config, NOOP))
    if missing:
        return missing
    noop, own = evidence.headline[NOOP], evidence.headline[config]
    both = combine(noop, own)
    a, b = both.replicates
    assert noop.point is not None and own.point is not None
    # noop < half of own, as a difference: a ratio has no meaning while own's tax may be zero.
    with np.errstate(invalid="ignore"):
        slack = both.estimate(noop.point - H3_SHARE * own.point, a - H3_SHARE * b)
    judge = partial(against, 0.0, above=REFUTED, below=SUPPORTED)
    outcome = judge(*slack.interval(evidence.confidence))
    share = share_of(noop, own, evidence.confidence)
    # Both are of the same resamples, and what one leaves open the other does not decide.
    label = None if outcome == UNDETERMINED else dominated(*share.interval(evidence.confidence))
    word = verdict(own, evidence.confidence)
    if word != TAX or share.point is None:
        outcome, label = (
            UNDETERMINED,
            NOTHING_TO_SPLIT.get(word, "whether there is a tax to split is not known"),
        )
    return Verdict(
        "H3",
        config,
        outcome,
        label,
        VerdictNumbers(
            tax_noop=_numbers(noop, evidence),
            tax_connector=_numbers(own, evidence),
            share=_numbers(share, evidence),
            threshold=H3_SHARE,
        ),
        f"The no-op connector's tax is {_percent(noop, evidence)}, that of {config} "
        f"{_percent(own, evidence)}{f' ({label})' if label else ''}; less than half of it: {outcome}.",
        p_of_outcome(slack, evidence.confidence, judge, outcome, where_a_tax=own),
    )


def _h4(evidence: Evidence, stack: str, parts: tuple[str, ...]) -> Verdict:
    missing = _untestable("H4", evidence, stack, (stack, *parts))
    if missing:
        return missing
    whole = evidence.headline[stack]
    taxes = [evidence.headline[p] for p in parts]
    together = combine(whole, *taxes)
    replicates = together.replicates
    assert whole.point is not None
    sum_of_points = sum(t.point for t in taxes if t.point is not None)
    with np.errstate(divide="ignore", invalid="ignore"):
        total = together.estimate(sum_of_points, np.sum(replicates[1:], axis=0))
        ratios = (replicates[0] - total.replicates) / np.abs(replicates[0])
    excess = (whole.point - sum_of_points) / abs(whole.point) if whole.point else None
    word = verdict(whole, evidence.confidence)
    # As a ratio to what may be nothing it would be one of noise.
    known = word in (TAX, GAIN)
    ratio = together.estimate(excess, ratios) if known else unavailable(NO_STACK[word], together.n)
    judge = partial(inside, (-H4_TOLERANCE, H4_TOLERANCE))
    outcome = judge(*ratio.interval(evidence.confidence))
    label = None
    if word != TAX:
        outcome, label = UNDETERMINED, NO_STACK[word]
    elif outcome == REFUTED and excess is not None:
        label = "super-additive: interference" if excess > 0 else "sub-additive: shared cost"
    elif outcome == SUPPORTED:
        label = "additive"
    return Verdict(
        "H4",
        stack,
        outcome,
        label,
        VerdictNumbers(
            tax_stack=_numbers(whole, evidence),
            sum_of_parts=_numbers(total, evidence),
            excess_over_stack=_numbers(ratio, evidence),
            parts={p: _numbers(t, evidence) for p, t in zip(parts, taxes, strict=True)},
            tolerance=H4_TOLERANCE,
        ),
        f"{stack} changes TTFT p90 by {_percent(whole, evidence)}; the changes by {' and '.join(parts)} alone add up to "
        f"{_percent(total, evidence)}; additive within {100 * H4_TOLERANCE:.0f} % of the stack's tax: {outcome}"
        f"{f' ({label})' if label and label != 'additive' else ''}.",
        p_of_outcome(ratio, evidence.confidence, judge, outcome, where_a_tax=whole),
    )


def _trend(
    hypothesis: HypothesisId, evidence: Evidence, config: str, trends: Mapping[str, Trend], length_name: str
) -> Verdict:
    """Grows: every length has a number, each is above the one before, and so is the slope above zero."""
    trend = trends.get(config)
    if trend is None or len(trend.known) < 2:
        reason = (
            evidence.absent.get(config) or why_no_trend(trend, length_name) or _no_shapes(evidence, config)
        )
        return _not_testable(hypothesis, config, f"{config}: {reason}")
    slope = trend.slope_per_doubling()
    doubts = []
    if trend.lost:
        doubts.append(f"{len(trend.lost)} of {len(trend.by_length)} {length_name} lengths without a number")
    if trend.direction() != RISING:
        doubts.append(trend.direction())
    outcome = grows(*slope.interval(evidence.confidence))
    if outcome == SUPPORTED and doubts:
        outcome = UNDETERMINED
    label = trend.direction() if outcome != UNDETERMINED else "; ".join(doubts) or trend.direction()
    why = f" ({', '.join(doubts)})" if outcome == UNDETERMINED and doubts else ""
    return Verdict(
        hypothesis,
        config,
        outcome,
        label,
        VerdictNumbers(
            slope_per_doubling=_numbers(slope, evidence),
            by_length={str(k): _numbers(e, evidence) for k, e in trend.by_length.items()},
            rates_per_s={str(k): r for k, r in trend.rates_per_s.items()},
            averaged_over=trend.averaged_over,
            left_out={str(k): reason for k, reason in trend.left_out.items()},
        ),
        f"Per doubling of the {length_name} length the {METRIC_OF[hypothesis]} tax of {config} by phase B's launches changes by "
        f"{_points(slope, evidence)} ({values_text(trend, lambda e: _percent(e, evidence))}), "
        f"{averaged_text(trend, OTHER_LENGTH[length_name])}; growing: {outcome}{why}.{_caveat(trend, config)}",
        p_of_outcome(slope, evidence.confidence, grows, outcome),
    )


def _caveat(trend: Trend, config: str) -> str:
    if not trend.queueing:
        return ""
    at = ", ".join(map(str, trend.queueing))
    return f" At {at} tokens plain or {config} did not keep up, so what grows there may be queueing."


def _untestable(
    hypothesis: HypothesisId, evidence: Evidence, subject: str, needed: tuple[str, ...]
) -> Verdict | None:
    lacking = [c for c in needed if evidence.headline.get(c) is None or evidence.headline[c].point is None]
    if not lacking:
        unlike = unlike_kinds(needed, evidence.over_blocks)
        return _not_testable(hypothesis, subject, unlike) if unlike else None
    return _not_testable(
        hypothesis,
        subject,
        "; ".join(f"{c}: {evidence.absent.get(c) or _why(evidence, c)}" for c in lacking),
    )


def _why(evidence: Evidence, config: str) -> str:
    estimate = evidence.headline.get(config)
    return (estimate.reason if estimate is not None else None) or _not_here(evidence, config)


def _not_here(evidence: Evidence, config: str) -> str:
    known = config in evidence.members
    return "no usable cell at ref_safe" if known else "not part of this campaign"


def _no_shapes(evidence: Evidence, config: str) -> str:
    return "it has no run of phase B" if config in evidence.members else "not part of this campaign"


def _not_testable(hypothesis: HypothesisId, subject: str, reason: str) -> Verdict:
    return Verdict(hypothesis, subject, NOT_TESTABLE, None, VerdictNumbers(), f"Not testable ({reason}).")


def _numbers(estimate: Estimate, evidence: Evidence) -> Quantity:
    return estimate.quantity(evidence.confidence)


def _percent(estimate: Estimate, evidence: Evidence) -> str:
    return interval_text(estimate, evidence.confidence, " %")


def _points(estimate: Estimate, evidence: Evidence) -> str:
    return f"{interval_text(estimate, evidence.confidence)} points"
