"""What holds for how many connectors, in words: those whose interval lies above zero, those below, and how many have neither.

Titles and the page's first lines are made of it, so that neither the largest alone nor its estimate decides what they say.
"""

from collections.abc import Mapping, Sequence

from connector_tax.figures.lookup import Aggregate, Interval, label_of
from connector_tax.figures.words import clean, listing, with_interval
from connector_tax.records.connector import MATCHED, PLAIN_AGAIN

# More of them are named, and the first alone has its number.
MOST_NUMBERS = 2


def of_connectors(found: Mapping[str, Interval]) -> dict[str, Interval]:
    """Without launches of plain, whatever their settings."""
    return {c: v for c, v in found.items() if c not in ("plain", PLAIN_AGAIN) and not c.startswith(MATCHED)}


def above_zero(found: Mapping[str, Interval]) -> list[str]:
    """Those told apart from zero and above it, largest first."""
    clear = [k for k, v in found.items() if v.low is not None and v.low > 0]
    return sorted(clear, key=lambda k: -found[k].point)


def below_zero(found: Mapping[str, Interval]) -> list[str]:
    """Those told apart from zero and below it, lowest first."""
    clear = [k for k, v in found.items() if v.high is not None and v.high < 0]
    return sorted(clear, key=lambda k: found[k].point)


def told_apart(
    aggregate: Aggregate,
    found: Mapping[str, Interval],
    *,
    unit: str = "ratio",
    above: str = "a tax",
    below: str = "a gain",
) -> str:
    """``a tax for 2 of 7 connectors, A with +74 % [+45 %, +109 %] and B with ..., neither a tax nor a gain for the other 5``.

    Args:
        found: configuration -> its number; at least one.
    """
    n = len(found)
    parts = [
        f"{word} for {len(clear)} of {n} connector{'s' if n > 1 else ''}, {_named(aggregate, clear, found, unit)}"
        for word, clear in ((above, above_zero(found)), (below, below_zero(found)))
        if clear
    ]
    rest = n - len(above_zero(found)) - len(below_zero(found))
    if not parts:
        whom = f"any of {n} connectors" if n > 1 else _named(aggregate, list(found), found, unit)
        return f"neither {above} nor {below} is found for {whom}"
    if rest:
        parts.append(f"neither for the other {rest}" if rest > 1 else "neither for the other one")
    return "; ".join(parts)


def _named(aggregate: Aggregate, configs: Sequence[str], found: Mapping[str, Interval], unit: str) -> str:
    names = [clean(label_of(aggregate, c), 40) for c in configs]
    numbers = MOST_NUMBERS if len(configs) <= MOST_NUMBERS else 1
    said = [f"{name} with {with_interval(found[c], unit)}" for name, c in zip(names, configs, strict=True)]
    return listing([*said[:numbers], *names[numbers:]], len(names))
