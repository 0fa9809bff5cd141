"""What holds for how many connectors, in words: those whose interval lies above zero, those below, those that hold it, and those of
which it is not known.

Titles and the page's first lines are made of it, so that neither the largest alone nor its estimate decides what they say.
"""

import math
from collections.abc import Collection, Mapping, Sequence

from connector_tax.base.documents.aggregate import Aggregate, Interval
from connector_tax.base.records.connector import MATCHED, is_connector
from connector_tax.base.statistics.outcomes import GAIN, NO_TAX_FOUND, TAX, UNDETERMINED, unresolved
from connector_tax.read.figures.questions import why_no_number
from connector_tax.read.figures.words import clean, listing, with_interval

# Of more of them the largest alone has its number, and the others are named.
MOST_NUMBERS = 2


def of_connectors(found: Mapping[str, Interval]) -> dict[str, Interval]:
    return {c: v for c, v in found.items() if is_connector(c)}


def drawn_of(configs: Collection[str]) -> list[str]:
    """The connectors among them; where there is none, all: plain vLLM with a connector's settings is no connector."""
    return [c for c in configs if is_connector(c)] or list(configs)


def not_drawn(configs: Collection[str]) -> list[str]:
    """The caption's sentence on those that ``drawn_of`` leaves out, or that it draws them, being all there is."""
    if configs and not any(map(is_connector, configs)):
        return [
            f"Drawn: {listing(list(configs), len(configs))}, plain vLLM with a connector's settings, since no connector has a number."
        ]
    left = [c for c in configs if c not in drawn_of(configs)]
    return [f"Not drawn: {listing(left, len(left))}, plain vLLM with a connector's settings."] if left else []


def uncounted(configs: Collection[str]) -> list[str]:
    """The caption's sentences on those that are drawn and that no title counts."""
    return [
        f"The title does not count {c}, plain vLLM with a connector's settings."
        for c in configs
        if c.startswith(MATCHED)
    ]


def without_number(aggregate: Aggregate, *, metric: str, reference: str) -> dict[str, str]:
    """Connectors of the campaign that have no tax there -> why, in the campaign's order."""
    taxes = {t.config: t for t in aggregate.chosen_taxes if (t.metric, t.reference) == (metric, reference)}
    lost = [c for c in aggregate.config_ids if is_connector(c) and not (c in taxes and taxes[c].known)]
    return {c: (taxes[c].reason if c in taxes else None) or why_no_number(aggregate, c) for c in lost}


def not_among(aggregate: Aggregate, found: Collection[str]) -> list[str]:
    """Connectors of the campaign that are not in ``found``, in its order."""
    return [c for c in aggregate.config_ids if is_connector(c) and c not in found]


def above_zero(found: Mapping[str, Interval]) -> list[str]:
    """Those told apart from zero and above it, largest first."""
    return sorted((k for k, v in found.items() if v.told == TAX), key=lambda k: -found[k].point)


def below_zero(found: Mapping[str, Interval]) -> list[str]:
    """Those told apart from zero and below it, lowest first."""
    return sorted((k for k, v in found.items() if v.told == GAIN), key=lambda k: found[k].point)


def not_known(found: Mapping[str, Interval]) -> list[str]:
    """Those of which an open end leaves it so, the largest estimate first."""
    return sorted((k for k, v in found.items() if v.told == UNDETERMINED), key=lambda k: -found[k].point)


def told_apart(
    aggregate: Aggregate,
    found: Mapping[str, Interval],
    *,
    unit: str = "ratio",
    above: str = "a tax",
    below: str = "a gain",
    without: Sequence[str] = (),
    beside: str = "",
) -> str:
    """``a tax for 2 of 7 connectors, A with +74 % [+45 %, +109 %] and B with ...; no difference is found for the other 5``.

    Args:
        found: connector -> its number.
        without: connectors that have no number.
        beside: what connectors are not counted, behind the number of those that are.
    """
    n = len(found) + len(without)
    if not found:
        return (
            f"none of {n} connectors{beside} has a number" if n > 1 else f"no connector{beside} has a number"
        )
    of = f"of {n} connector{'s' if n > 1 else ''}{beside}"
    parts = [
        f"{word} for {len(clear)} {of}{_named(aggregate, clear, found, unit)}"
        for word, clear in ((above, above_zero(found)), (below, below_zero(found)))
        if clear
    ]
    wide = [k for k, v in found.items() if unresolved(v, unit)]
    neither = [k for k, v in found.items() if v.told == NO_TAX_FOUND and k not in wide]
    unknown = not_known(found)
    others, nothing = bool(wide or unknown or without), "no difference is found for"
    if neither and parts:
        parts.append(
            f"{nothing} {'' if others else 'the other '}{len(neither) if len(neither) > 1 else 'one'}"
        )
    elif neither and others:
        parts.append(f"{nothing} {len(neither)} {of}")
    elif neither:
        whom = f"any {of}" if n > 1 else _named(aggregate, neither, found, unit).removeprefix(", ")
        parts.append(f"{nothing} {whom}")
    if wide:
        wide = sorted(wide, key=lambda k: -_width(found[k]))
        many = f"{len(wide)} {of}" if len(wide) > MOST_NUMBERS else ""
        named = _named(aggregate, wide, found, unit, "widest interval")
        why = "since the interval is wider than 100 points"
        parts.append(f"not resolved here, {why}, for {f'{many}{named}'.removeprefix(', ')}")
    if unknown:
        many = f"{len(unknown)} {of}" if len(unknown) > MOST_NUMBERS else ""
        named = _named(aggregate, unknown, found, unit, "largest estimate")
        parts.append(f"not known, since the interval is open, for {f'{many}{named}'.removeprefix(', ')}")
    if without:
        names = [clean(aggregate.label_of(c), 40) for c in without]
        count = "one" if len(without) == 1 else len(without)
        parts.append(f"{count} without a number, {listing(names, len(names))}")
    return "; ".join(parts)


def _width(value: Interval) -> float:
    return math.inf if value.low is None or value.high is None else value.high - value.low


def _named(
    aggregate: Aggregate,
    configs: Sequence[str],
    found: Mapping[str, Interval],
    unit: str,
    first: str = "largest",
) -> str:
    """``, A with +74 % [+45 %, +109 %] and B with ...``; of many ``: the largest A, +74 % [+45 %, +109 %]; also B, C and D``."""
    names, numbers = (
        [clean(aggregate.label_of(c), 40) for c in configs],
        [with_interval(found[c], unit) for c in configs],
    )
    if len(configs) > MOST_NUMBERS:
        return f": the {first} {names[0]}, {numbers[0]}; also {listing(names[1:], len(names))}"
    said = [f"{name} with {number}" for name, number in zip(names, numbers, strict=True)]
    return f", {listing(said)}"
