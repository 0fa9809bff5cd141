"""H1 to H6: supported, refuted, undetermined (the interval holds the threshold) or not testable.

Thresholds are those of the published experiment; ``docs/measurement.md`` lists them. Where the
Mooncake configurations could not run, H1, H3, H5 and H6 are asked of the connectors that did.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from connector_tax.stats.bootstrap import Estimate, combine
from connector_tax.stats.taxes import difference, verdict

SUPPORTED, REFUTED, UNDETERMINED, NOT_TESTABLE = "supported", "refuted", "undetermined", "not testable"
H1_THRESHOLD = 0.10
H1_PRIOR, H1_KEEP = 0.45, (0.25, 0.60)
H2_RANGE = (0.05, 0.10)
H3_SHARE, H3_LOW_SHARE = 0.50, 0.30
H4_TOLERANCE = 0.30
MAIN = "mooncake_both"

TITLES = {
    "H1": "The tax persists on a single instance under synthetic load",
    "H2": "Mooncake costs 5 to 10 percentage points more than NIXL",
    "H3": "The framework is less than half of the connector's tax",
    "H4": "The tax of stacked connectors is the sum of their taxes",
    "H5": "The TTFT tax grows with the input length",
    "H6": "The TPOT tax grows with the output length",
}


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the hypotheses are decided on; every estimate at ``ref_safe``.

    Attributes:
        headline: config -> tax of TTFT p90, Phase A shape.
        by_input: config -> input length -> TTFT p90 tax, averaged over output lengths.
        by_output: config -> output length -> TPOT p90 tax, averaged over input lengths.
        absent: config -> why it has no numbers.
        stacks: config of a MultiConnector -> the configurations it is made of.
    """

    headline: Mapping[str, Estimate]
    by_input: Mapping[str, Mapping[int, Estimate]]
    by_output: Mapping[str, Mapping[int, Estimate]]
    absent: Mapping[str, str]
    stacks: Mapping[str, tuple[str, ...]]
    confidence: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """One hypothesis about one subject."""

    id: str
    subject: str
    outcome: str
    label: str | None
    numbers: dict[str, Any]
    sentence: str

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "title": TITLES[self.id],
            "subject": self.subject,
            "outcome": self.outcome,
            "label": self.label,
            "numbers": self.numbers,
            "sentence": self.sentence,
        }


def judge_hypotheses(evidence: Evidence) -> list[Verdict]:
    """The six, about their own subjects, and about stand-ins where Mooncake has no numbers."""
    found = [
        _h1(evidence, MAIN),
        _h2(evidence, MAIN, "nixl_both"),
        _h3(evidence, MAIN),
        _h4(evidence, "multi_mooncake_lmcache", (MAIN, "lmcache_only")),
        _trend("H5", evidence, MAIN, evidence.by_input, "input"),
        _trend("H6", evidence, MAIN, evidence.by_output, "output"),
    ]
    if MAIN not in evidence.headline:
        for config in evidence.headline:
            if config == "noop_connector":
                continue
            found += [
                _h1(evidence, config),
                _h3(evidence, config),
                _trend("H5", evidence, config, evidence.by_input, "input"),
                _trend("H6", evidence, config, evidence.by_output, "output"),
            ]
    for stack, parts in evidence.stacks.items():
        if stack != "multi_mooncake_lmcache" and stack in evidence.headline:
            found.append(_h4(evidence, stack, parts))
    return found


def _h1(evidence: Evidence, config: str) -> Verdict:
    missing = _untestable("H1", evidence, config, (config,))
    if missing:
        return missing
    tax = evidence.headline[config]
    low, high = tax.interval(evidence.confidence)
    outcome = _against(H1_THRESHOLD, low, high, above=SUPPORTED, below=REFUTED)
    label = None
    if config == MAIN and tax.point is not None:
        kept = H1_KEEP[0] <= tax.point <= H1_KEEP[1]
        label = f"prior {H1_PRIOR:.0%} kept" if kept else f"prior {H1_PRIOR:.0%} revised to {tax.point:.1%}"
    return Verdict(
        "H1",
        config,
        outcome,
        label,
        {"tax_ttft_p90": _numbers(tax, evidence), "threshold": H1_THRESHOLD},
        f"TTFT p90 of {config} is {_percent(tax, evidence)} above plain at ref_safe; the threshold is "
        f"{H1_THRESHOLD:.0%}: {outcome}.",
    )


def _h2(evidence: Evidence, first: str, second: str) -> Verdict:
    missing = _untestable("H2", evidence, first, (first, second))
    if missing:
        return missing
    gap = difference(evidence.headline[first], evidence.headline[second])
    low, high = gap.interval(evidence.confidence)
    outcome = _inside(H2_RANGE, low, high)
    return Verdict(
        "H2",
        first,
        outcome,
        None,
        {"gap": _numbers(gap, evidence), "range": list(H2_RANGE)},
        f"The tax of {first} exceeds that of {second} by {_points(gap, evidence)}; "
        f"the replayed gap was 7 points: {outcome}.",
    )


def _h3(evidence: Evidence, config: str) -> Verdict:
    missing = _untestable("H3", evidence, config, (config, "noop_connector"))
    if missing:
        return missing
    noop, own = evidence.headline["noop_connector"], evidence.headline[config]
    (a, b), n = combine(noop, own)
    assert noop.point is not None and own.point is not None
    # noop < half of own, as a difference: a ratio has no meaning while own's tax may be zero.
    slack = Estimate(noop.point - H3_SHARE * own.point, _plain(a - H3_SHARE * b), n)
    low, high = slack.interval(evidence.confidence)
    outcome = _against(0.0, low, high, above=REFUTED, below=SUPPORTED)
    share = noop.point / own.point if own.point else None
    label = None
    if verdict(own, evidence.confidence) != "tax" or share is None:
        outcome, label = UNDETERMINED, "no tax to split"
    elif share >= H3_SHARE:
        label = "framework-cost-dominated"
    else:
        label = "implementation-cost-dominated" if share < H3_LOW_SHARE else "mixed"
    return Verdict(
        "H3",
        config,
        outcome,
        label,
        {
            "tax_noop": _numbers(noop, evidence),
            "tax_connector": _numbers(own, evidence),
            "share": share,
            "threshold": H3_SHARE,
        },
        f"The no-op connector's tax is {_percent(noop, evidence)}, that of {config} "
        f"{_percent(own, evidence)}: {label}; {outcome}.",
    )


def _h4(evidence: Evidence, stack: str, parts: tuple[str, ...]) -> Verdict:
    missing = _untestable("H4", evidence, stack, (stack, *parts))
    if missing:
        return missing
    whole = evidence.headline[stack]
    taxes = [evidence.headline[p] for p in parts]
    replicates, n = combine(whole, *taxes)
    points = [t.point for t in taxes if t.point is not None]
    assert whole.point is not None
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = (replicates[0] - sum(replicates[1:])) / np.abs(replicates[0])
    excess = (whole.point - sum(points)) / abs(whole.point) if whole.point else None
    ratio = Estimate(excess, _plain(ratios), n)
    low, high = ratio.interval(evidence.confidence)
    outcome = _inside((-H4_TOLERANCE, H4_TOLERANCE), low, high)
    label = None
    if verdict(whole, evidence.confidence) != "tax":
        outcome, label = UNDETERMINED, "the stack's own tax is inside the noise"
    elif outcome == REFUTED and excess is not None:
        label = "super-additive: interference" if excess > 0 else "sub-additive: shared cost"
    elif outcome == SUPPORTED:
        label = "additive"
    return Verdict(
        "H4",
        stack,
        outcome,
        label,
        {
            "tax_stack": _numbers(whole, evidence),
            "sum_of_parts": sum(points),
            "excess_over_stack": _numbers(ratio, evidence),
            "parts": {p: _numbers(t, evidence) for p, t in zip(parts, taxes, strict=True)},
            "tolerance": H4_TOLERANCE,
        },
        f"{stack} costs {_percent(whole, evidence)}, its parts {' + '.join(parts)} together "
        f"{sum(points):.1%}: {label or outcome}; {outcome}.",
    )


def _trend(
    hypothesis: str,
    evidence: Evidence,
    config: str,
    taxes: Mapping[str, Mapping[int, Estimate]],
    length_name: str,
) -> Verdict:
    """Slope of the tax over log2 of the length, by least squares, in every resample."""
    missing = _untestable(hypothesis, evidence, config, (config,))
    by_length = {k: e for k, e in sorted(taxes.get(config, {}).items()) if e.point is not None}
    if missing:
        return missing
    if len(by_length) < 2:
        return _not_testable(
            hypothesis, config, f"Phase B has taxes at {len(by_length)} {length_name} lengths"
        )
    x = np.log2(np.array(list(by_length), dtype=float))
    weights = (x - x.mean()) / ((x - x.mean()) ** 2).sum()
    replicates, n = combine(*by_length.values())
    points = np.array([e.point for e in by_length.values()], dtype=float)
    slope = Estimate(float(weights @ points), _plain(weights @ np.vstack(replicates)), n)
    low, high = slope.interval(evidence.confidence)
    outcome = _against(0.0, low, high, above=SUPPORTED, below=REFUTED)
    values = ", ".join(f"{k}: {e.point:.1%}" for k, e in by_length.items())
    return Verdict(
        hypothesis,
        config,
        outcome,
        "monotonic" if bool(np.all(np.diff(points) > 0)) else "not monotonic",
        {
            "slope_per_doubling": _numbers(slope, evidence),
            "by_length": {str(k): _numbers(e, evidence) for k, e in by_length.items()},
        },
        f"The tax of {config} by {length_name} length ({values}) changes by {_points(slope, evidence)} "
        f"per doubling: {outcome}.",
    )


def _untestable(hypothesis: str, evidence: Evidence, subject: str, needed: tuple[str, ...]) -> Verdict | None:
    lacking = [c for c in needed if evidence.headline.get(c) is None or evidence.headline[c].point is None]
    if not lacking:
        return None
    reasons = "; ".join(f"{c}: {evidence.absent.get(c) or _why(evidence.headline.get(c))}" for c in lacking)
    return _not_testable(hypothesis, subject, reasons)


def _why(estimate: Estimate | None) -> str:
    return (estimate.reason if estimate is not None else None) or "no tax at ref_safe"


def _not_testable(hypothesis: str, subject: str, reason: str) -> Verdict:
    return Verdict(hypothesis, subject, NOT_TESTABLE, None, {}, f"Not testable ({reason}).")


def _against(threshold: float, low: float | None, high: float | None, *, above: str, below: str) -> str:
    if low is not None and low >= threshold:
        return above
    if high is not None and high < threshold:
        return below
    return UNDETERMINED


def _inside(bounds: tuple[float, float], low: float | None, high: float | None) -> str:
    if low is not None and high is not None and bounds[0] <= low and high <= bounds[1]:
        return SUPPORTED
    if (low is not None and low > bounds[1]) or (high is not None and high < bounds[0]):
        return REFUTED
    return UNDETERMINED


def _plain(values: Any) -> Any:
    """Resamples that met infinity minus infinity count as unbounded."""
    return np.where(np.isnan(values), np.inf, values)


def _numbers(estimate: Estimate, evidence: Evidence) -> dict[str, Any]:
    return estimate.to_json(evidence.confidence)


def _text(estimate: Estimate, evidence: Evidence, form: Callable[[float], str]) -> str:
    low, high = estimate.interval(evidence.confidence)
    point = form(estimate.point) if estimate.point is not None else "unknown"
    bounds = [form(v) if v is not None else "unbounded" for v in (low, high)]
    return f"{point} [{bounds[0]}, {bounds[1]}]"


def _percent(estimate: Estimate, evidence: Evidence) -> str:
    return _text(estimate, evidence, lambda v: f"{v:.1%}")


def _points(estimate: Estimate, evidence: Evidence) -> str:
    return _text(estimate, evidence, lambda v: f"{100 * v:.1f}") + " points"
