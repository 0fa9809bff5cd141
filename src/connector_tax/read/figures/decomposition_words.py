"""What Figure 7 says: taxes and the parts that they are split into, in words and as numbers."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from connector_tax.base.documents.aggregate import Aggregate, Decomposition, Interval, LatencyMetric
from connector_tax.base.records.connector import MATCHED
from connector_tax.base.statistics.outcomes import unresolved
from connector_tax.read.figures.claims import above_zero, below_zero, not_known, told_apart, without_number
from connector_tax.read.figures.questions import (
    Tax,
    confidence_words,
    in_order,
    main_taxes,
    reference_rate,
    why_absent,
)
from connector_tax.read.figures.words import (
    MEASURED,
    clean,
    counted,
    fell_behind,
    launches_behind,
    left_out,
    listing,
    of_reference_rates,
    rate,
    with_interval,
)

NOOP = "noop_connector"
# As ``stats.decomposition`` and ``stats.main_taxes`` say it of one connector.
SETTINGS_NOT_KNOWN = re.compile(r"the engine settings of (\S+) are not known")
NOT_COMBINED = re.compile(r"(\S+'s tax is [^,]+), (\S+)'s ([^:]+): the two are not combined")
METRICS: dict[LatencyMetric, str] = {"ttft_p90": "TTFT p90", "tpot_p90": "TPOT p90"}
PARTS = {
    "flags": "engine settings that it switches",
    "framework": "vLLM's connector framework",
    "implementation": "its own code",
}
TWO_PARTS = ("framework", "implementation")
REST = "what it adds to the no-op connector (settings that it switches among it)"


@dataclass(frozen=True, slots=True)
class Stack:
    """One connector's tax on one latency; ``parts`` is empty where they cannot be told apart.

    Attributes:
        why_not: why there are not three parts.
        unlike: part -> ``over n blocks``, of those over other blocks than the whole.
        fewer: those of them that are over fewer.
        switches: its settings were measured, so it switches some.
    """

    total: Interval
    parts: dict[str, Interval]
    why_not: str
    unlike: dict[str, str]
    fewer: frozenset[str]
    switches: bool


Stacks = dict[LatencyMetric, dict[str, Stack]]


def stacks_of(aggregate: Aggregate) -> Stacks:
    """Per latency and connector; only those with a tax."""
    rows = in_order(aggregate, aggregate.decomposition)
    found = {
        metric: {
            row.config: stack for row in rows if row.metric == metric and (stack := _stack(row)) is not None
        }
        for metric in METRICS
    }
    return {metric: own for metric, own in found.items() if own}


def _stack(row: Decomposition) -> Stack | None:
    """None without a tax."""
    if (total := row.total.interval) is None:
        return None
    every = {"flags": row.flags, "framework": row.framework, "implementation": row.implementation}
    wanted = TWO_PARTS if row.parts == 2 else tuple(PARTS)
    parts = {p: value for p in wanted if (value := every[p].interval) is not None}
    whole = len(parts) == len(wanted)
    # Without the last part there are none: that needs the flags, or else the no-op connector.
    why = [part.reason or "" for p, part in every.items() if p not in parts]
    missing = "; ".join(dict.fromkeys(filter(None, why[:1] if whole else (why[0], why[-1]))))
    kinds = {p: kind for p in parts if (kind := every[p].kind) is not None}
    unlike = {p: kind for p, kind in kinds.items() if whole and kind != row.kind}
    fewer = frozenset(p for p, kind in unlike.items() if _blocks(kind) < _blocks(row.kind))
    return Stack(total, parts if whole else {}, missing, unlike, fewer, switches="flags" in kinds)


def _blocks(kind: str) -> int:
    """Of ``over 4 blocks``; 0 where it is of one launch."""
    found = re.search(r"\d+", kind)
    return int(found[0]) if found else 0


def why_not(aggregate: Aggregate, stacks: Stacks) -> str:
    measured = {c for c, state in aggregate.configs.items() if state.status in MEASURED}
    if NOOP not in measured:
        return f"there is no tax of the framework alone: {why_absent(aggregate, NOOP)}"
    reasons = {s.why_not for found in stacks.values() for s in found.values() if s.why_not}
    if reasons:
        each = dict.fromkeys(why for several in sorted(reasons) for why in several.split("; "))
        return f"no tax can be split: {'; '.join(_together(each))}"
    if not any(NOOP in main_taxes(aggregate, metric=m, reference="ref_safe") for m in METRICS):
        why = without_number(aggregate, metric="ttft_p90", reference="ref_safe")[NOOP]
        return f"there is no tax of the framework alone: {NOOP}: {why}"
    lost: dict[str, list[str]] = {}
    for row in aggregate.decomposition:
        if row.total.reason and row.config not in lost.setdefault(row.total.reason, []):
            lost[row.total.reason].append(row.config)
    whose = [
        f"{listing(own, len(own))}{', each' if len(own) > 1 else ''}: {why}" for why, own in lost.items()
    ]
    why = f": {'; '.join(whose)}" if whose else ""
    return f"the tax of no connector beside the no-op one is known at ref_safe{why}"


def _together(reasons: Iterable[str]) -> list[str]:
    """Whose engine settings are not known is one reason, and whose taxes are of another kind, however many they are."""
    settings: list[str] = []
    unlike: dict[tuple[str, str], list[str]] = {}
    others = []
    for why in reasons:
        if match := SETTINGS_NOT_KNOWN.fullmatch(why):
            settings.append(match[1])
        elif match := NOT_COMBINED.fullmatch(why):
            unlike.setdefault((match[1], match[3]), []).append(match[2])
        else:
            others.append(why)
    first = (
        [f"the engine settings of {listing(sorted(settings), len(settings))} are not known"]
        if settings
        else []
    )
    return (
        first
        + [
            f"{noop} and {'that' if len(names) == 1 else 'those'} of {listing(sorted(names), len(names))} {kind}: they are not combined"
            for (noop, kind), names in unlike.items()
        ]
        + others
    )


def title_of(aggregate: Aggregate, stacks: Stacks) -> str:
    """What the largest tax is mostly made of, as far as its intervals tell."""
    totals_of = {m: {c: s.total for c, s in found.items()} for m, found in stacks.items()}
    metric = next((m for m, totals in totals_of.items() if above_zero(totals)), None)
    if metric is None:
        claims = [
            f"{METRICS[m]}: {told_apart(aggregate, totals, without=_without(aggregate, m), beside=_beside(aggregate))}"
            for m, totals in totals_of.items()
        ]
        return f"{_nothing_to_split(totals_of)}. {'. '.join(claims)}"
    found, totals, what = stacks[metric], totals_of[metric], METRICS[metric]
    taxed = above_zero(totals)
    stack, name = found[taxed[0]], clean(aggregate.label_of(taxed[0]), 40)
    whole = f"the {with_interval(stack.total)} that {name} adds to {what}"
    others = _others(aggregate, totals, _without(aggregate, metric))
    if not stack.parts:
        return f"Of what {whole} is made cannot be told: {stack.why_not}{others}"
    clear = [*above_zero(stack.parts), *below_zero(stack.parts)]
    if not clear:
        unknown = [_words(stack, p) for p in not_known(stack.parts)]
        open_parts = f"; of {listing(unknown)} it is not known" if unknown else ""
        return f"No part of {whole} is told apart from zero{open_parts}{others}"
    parts = listing([f"{with_interval(stack.parts[p])} is {_words(stack, p)}" for p in clear])
    # Settings that are not switched are known to cost nothing.
    rest = [_words(stack, p) for p, v in stack.parts.items() if p not in clear and (v.low, v.high) != (0, 0)]
    unclear = f"; not told apart from zero: {listing(rest)}" if rest else ""
    if all(0 <= stack.parts[p].point <= stack.total.point for p in clear):
        return f"Of {whole}, {parts}{unclear}{others}"
    # More than the whole is no part of it: other parts are below zero, or seem so.
    return f"{name} adds {with_interval(stack.total)} to {what}: {parts}{unclear}{others}"


def _nothing_to_split(totals: Mapping[LatencyMetric, Mapping[str, Interval]]) -> str:
    """Where no tax lies above zero."""
    if any(not_known(found) for found in totals.values()):
        return "Whether there is a tax to split is not known"
    if any(unresolved(value) for found in totals.values() for value in found.values()):
        return "Whether there is a tax to split is not resolved here"
    return "No tax to split is found"


def _without(aggregate: Aggregate, metric: LatencyMetric) -> list[str]:
    """The no-op connector's tax is a part."""
    return [c for c in without_number(aggregate, metric=metric, reference="ref_safe") if c != NOOP]


def _others(aggregate: Aggregate, totals: Mapping[str, Interval], without: list[str]) -> str:
    n = len(totals) + len(without)
    if n == 1:
        return ""
    gains, unknown = len(below_zero(totals)), not_known(totals)
    gain = f" and a gain for {gains} of {n}" if gains else ""
    wide = [c for c, value in totals.items() if unresolved(value)]
    heads = {"not known": unknown, "not resolved here": wide, "no number": without}
    names = {head: [clean(aggregate.label_of(c), 40) for c in them] for head, them in heads.items() if them}
    others = "".join(f"; {head} for {listing(own, n)}" for head, own in names.items())
    of = f"{n} connectors{_beside(aggregate)}"
    return f"; a tax is found for {len(above_zero(totals))} of {of}{gain}{others}"


def _beside(aggregate: Aggregate) -> str:
    """Whose tax is a part, and not counted."""
    return " beside the no-op one" if NOOP in aggregate.configs else ""


def _counted(aggregate: Aggregate, stacks: Stacks) -> str:
    """Requests behind the taxes that are split."""
    return counted(
        [
            tax.n
            for m, found in stacks.items()
            for c, tax in main_taxes(aggregate, metric=m, reference="ref_safe").items()
            if c in found
        ]
    )


def _words(stack: Stack, part: str) -> str:
    return REST if part == "implementation" and "flags" not in stack.parts else PARTS[part]


def caption_of(aggregate: Aggregate, stacks: Stacks) -> str:
    at = reference_rate(aggregate, "ref_safe")
    whole = sorted(
        {
            c
            for found in stacks.values()
            for c, s in found.items()
            if "flags" in s.parts and s.parts["flags"].point == 0 and not s.switches
        }
    )
    two = {
        c if all(c in own for own in stacks.values()) else f"{c} ({METRICS[metric]})": s.why_not
        for metric, found in stacks.items()
        for c, s in found.items()
        if s.parts and "flags" not in s.parts
    }
    torn = {c: s.why_not for found in stacks.values() for c, s in found.items() if not s.parts}
    parts = [
        f"At ref_safe{f' ({rate(at)})' if at is not None else ''}: flags = plain vLLM with the connector's settings against "
        "plain; framework = tax of the no-op connector less its own; implementation = the rest. Each part begins where the one before "
        f"ends; the dot at its end is its estimate, and the whisker on it the {confidence_words(aggregate)} interval; one that is narrower than the "
        f"dot is not seen; {_counted(aggregate, stacks)}.",
        launches_behind(drawn := _drawn(aggregate, stacks)),
        f"{behind} did not keep up: those taxes hold queueing."
        if (behind := fell_behind(aggregate, drawn))
        else "",
        _unlike_words(stacks, "Known in fewer blocks than the whole", fewer=True),
        _unlike_words(stacks, "Known over other blocks than the whole", fewer=False),
        f"No setting of plain's is switched by {listing(whole, 6)}." if whole else "",
        _two_words(two),
        " ".join(f"{c} is not split: {why}." for c, why in torn.items()),
        of_reference_rates(aggregate),
        left_out(
            aggregate, "a", {NOOP}.union(*stacks.values()), drawn, reference_rate(aggregate, "ref_safe")
        ),
    ]
    return " ".join(p for p in parts if p)


def _drawn(aggregate: Aggregate, stacks: Stacks) -> list[Tax]:
    """The taxes behind the bars: those that are split, and those of the no-op connector and of matched baselines that are parts of them."""
    found = []
    for metric, own in stacks.items():
        shown = set(own)
        shown |= {NOOP for s in own.values() if "framework" in s.parts}
        shown |= {MATCHED + c for c, s in own.items() if "flags" in s.parts}
        taxes = main_taxes(aggregate, metric=metric, reference="ref_safe")
        found += [tax for c, tax in taxes.items() if c in shown]
    return found


def _unlike_words(stacks: Stacks, head: str, *, fewer: bool) -> str:
    """Parts that fewer blocks know than the whole, or parts that more do."""
    named = []
    for metric, found in stacks.items():
        for config, stack in found.items():
            own = {p: kind for p, kind in stack.unlike.items() if (p in stack.fewer) == fewer}
            for kind in dict.fromkeys(own.values()):
                parts = ", ".join(p for p, k in own.items() if k == kind)
                named.append(f"{parts} of {METRICS[metric]} of {config} {clean(kind)}")
    return f"{head}: {listing(named, 9)}." if named else ""


def _two_words(two: Mapping[str, str]) -> str:
    if not two:
        return ""
    alike: dict[str, list[str]] = {}
    for config, why in two.items():
        # What is said of each in the same words is said once.
        alike.setdefault(why.replace(MATCHED + config.partition(" (")[0], f"{MATCHED}…"), []).append(config)
    named = "; ".join(
        f"{listing(own, len(own))}, each since {why}" if len(own) > 1 else f"{own[0]}, since {two[own[0]]}"
        for why, own in alike.items()
    )
    return (
        f"In two parts, framework = the no-op connector's whole tax, implementation = the rest, with what settings cost in either: "
        f"{named}."
    )
