"""A comparison as text that ends with its verdict, and as one JSON object."""

import json

from connector_tax.base.documents.aggregate import Metric, Unit
from connector_tax.base.files import to_json
from connector_tax.base.opening import printable
from connector_tax.base.records.connector import is_connector
from connector_tax.read.compare.changes import Change, Comparison, Number, Side
from connector_tax.read.compare.context import differences, notes, on_device, qualifiers
from connector_tax.read.compare.document import (
    ChangeOfTax,
    ComparisonDocument,
    OnlyIn,
    RateOfIt,
    SideOfIt,
    TaxOfSide,
)
from connector_tax.read.figures.words import clean, listing, with_interval
from connector_tax.read.figures.words import sentence as capital

# Of one line; a verdict may name every configuration.
MOST_CHARACTERS = 20_000
# In the verdict, of a kind.
MOST_NAMED = 9
OTHER = {"A": "B", "B": "A"}
METRIC_WORDS: dict[Metric, str] = {
    "ttft_p90": "TTFT p90",
    "tpot_p90": "TPOT p90",
    "step_p50_us": "median step",
    "callback_p50_us": "median of the connector's hooks per step",
}
VERDICTS = {0: "no regression", 1: "regression", 2: "not comparable"}


def comparison_text(comparison: Comparison) -> str:
    """For people; the last line is the verdict."""
    lines = [_head(comparison.a), _head(comparison.b), comparison.rate.sentence]
    lines += [f"Note: {note}" for note in notes(comparison)]
    for metric in METRIC_WORDS:
        lines += _table(comparison, metric)
    different = differences(comparison)
    lines += ["", "Differs between A and B:" if different else "Nothing else differs between A and B."]
    lines += [f"  {d.what}: {clean(d.a)} / {clean(d.b)}" for d in different]
    if comparison.only_in:
        lines += ["", "In one of the two only:"]
        lines += [
            f"  {config} (in {name}): in {OTHER[name]} {clean(why)}"
            for name, config, why in comparison.only_in
        ]
    if comparison.in_neither:
        lines += ["", "Planned, and without a tax in A and in B:"]
        lines += [f"  {absent.config}: {clean(absent.reason)}" for absent in comparison.in_neither]
    # Names, dates and reasons are whatever somebody wrote; none moves a cursor or ends a line.
    return "\n".join(printable(line, MOST_CHARACTERS) for line in [*lines, "", sentence(comparison)])


def _head(side: Side) -> str:
    return f"{side.name}: {clean(side.aggregate.campaign)}, {side.aggregate.date} ({side.path})"


def _table(comparison: Comparison, metric: Metric) -> list[str]:
    """Heading and rows of one metric, in columns; nothing where no configuration has it."""
    found = [c for c in comparison.changes if c.metric == metric]
    cells = [_columns(c) for c in found]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  " + "  ".join(t.ljust(w) for t, w in zip(row, widths, strict=True)).rstrip() for row in cells]
    title = f"{METRIC_WORDS[metric]}: tax in A, in B, change ({comparison.confidence * 100:g} % intervals)"
    return ["", title, *lines] if found else []


def _columns(change: Change) -> tuple[str, ...]:
    word = f"{change.word}, REGRESSION" if change.regression else change.word
    word += "" if change.decides else ", no connector: decides nothing"
    if change.value is None and change.a.value is not None and change.b.value is not None:
        word = f"{word} ({clean(change.why_not)})"
    return (
        change.config,
        f"A {number_text(change.a, change.unit)}",
        f"B {number_text(change.b, change.unit)}",
        f"change {change_text(change)}" if change.value is not None else "",
        word,
    )


def number_text(found: Number, unit: Unit) -> str:
    """A tax with its interval and kind, or why there is none."""
    if found.value is None:
        return f"not available ({clean(found.reason)})"
    queued = " did not keep up" if found.overloaded else ""
    return f"{with_interval(found.value, unit)} {clean(found.kind)}{queued}"


def change_text(change: Change) -> str:
    """Percentages differ by percentage points."""
    return with_interval(change.value, change.unit).replace(" %", " pp") if change.value is not None else ""


def sentence(comparison: Comparison) -> str:
    """The verdict, on one line, with what its intervals hold and what qualifies them: it gets quoted without the rest."""
    verdict = _refusal(comparison) if comparison.exit_code == 2 else _verdict(comparison)
    return " ".join([on_device(comparison) + verdict, *_basis(comparison)])


def _basis(comparison: Comparison) -> list[str]:
    """Of the taxes that decide: their kinds, where a side did not keep up, and flags of the reference rates."""
    if not comparison.decisive:
        return []
    sentences = [f"Intervals are {_kinds(comparison.decisive)}."]
    queued = [
        f"{METRIC_WORDS[c.metric]} of {c.config} in {' and '.join(sides)}"
        for c in comparison.decisive
        if (sides := [name for name, found in (("A", c.a), ("B", c.b)) if found.overloaded])
    ]
    if queued:
        sentences.append(
            f"The connector or plain did not keep up, so queueing is in {listing(queued, MOST_NAMED)}."
        )
    if qualified := qualifiers(comparison):
        sentences.append(f"{capital('; '.join(qualified))}.")
    return sentences


def _kinds(changes: list[Change]) -> str:
    """``over 5 blocks of launches in A and 4 in B``; where taxes differ in kind, how many are of each."""
    if not any(c.a.of_one_launch for c in changes):
        return f"{_blocks(changes, 'a')} of launches in A and {_blocks(changes, 'b')} in B"
    once = [c for c in changes if c.a.of_one_launch]
    if len(once) == len(changes):
        return "of one launch each and do not hold what launches differ by"
    over = [c for c in changes if c not in once]
    named = listing([f"{METRIC_WORDS[c.metric]} of {c.config}" for c in once], MOST_NAMED)
    return f"{_kinds(over)}; those of {named} are of one launch each and do not hold what launches differ by"


def _blocks(changes: list[Change], side: str) -> str:
    found = {clean(str(getattr(c, side).kind)) for c in changes}
    counts = sorted(int(k.split()[1]) for k in found if k.split()[1:2] and k.split()[1].isdecimal())
    return (
        f"over {f'{counts[0]} to ' if counts[0] < counts[-1] else ''}{counts[-1]} blocks"
        if counts
        else "over blocks"
    )


def _verdict(comparison: Comparison) -> str:
    # As it was given: 0.04 pp is not 0.
    limit = f"{comparison.fail_above * 100:g} pp"
    n, found = len(comparison.decisive), comparison.regressions
    missing = _missing(comparison)
    if not found:
        return f"No regression: no tax of {n} rose by more than {limit} with the rise told apart from zero{missing}."
    words = [f"{METRIC_WORDS[c.metric]} of {c.config} by {change_text(c)}" for c in found]
    return f"Regression: {len(found)} of {n} taxes rose, and by more than {limit}: {listing(words)}{missing}."


def _missing(comparison: Comparison) -> str:
    """A tax that could not be compared may be the one that rose, and so may one whose change has no bound."""
    parts = []
    if comparison.unbounded:
        words = [f"{METRIC_WORDS[c.metric]} of {c.config} by {change_text(c)}" for c in comparison.unbounded]
        verb = "change lacks" if len(words) == 1 else "changes lack"
        parts.append(f"{len(words)} {verb} a bound: {listing(words)}")
    if comparison.lost:
        named = [(f"{METRIC_WORDS[c.metric]} of {c.config}", c.why_not) for c in comparison.lost]
        told = "; ".join(f"{names} ({clean(why)})" for names, why in _by_reason(named))
        parts.append(f"{len(named)} could not be compared: {told}")
    in_neither = [absent for absent in comparison.in_neither if is_connector(absent.config)]
    in_both = [absent for absent in in_neither if len(absent.planned_in) == 2]
    skipped = [absent.config for absent in in_both if absent.skipped]
    if skipped:
        parts.append(
            f"{listing(skipped, MOST_NAMED)} {'was' if len(skipped) == 1 else 'were'} skipped in both"
        )
    failed = [absent.config for absent in in_both if not absent.skipped]
    if failed:
        verb = "has" if len(failed) == 1 else "have"
        parts.append(f"{listing(failed, MOST_NAMED)} {verb} no tax in A and none in B")
    for name in ("A", "B"):
        alone = [absent.config for absent in in_neither if absent.planned_in == (name,)]
        if alone:
            verb = "was" if len(alone) == 1 else "were"
            parts.append(
                f"{listing(alone, MOST_NAMED)} {verb} planned in {name} only, and not measured there"
            )
    words = [f"{config} is in {name} only" for name, config, _ in comparison.only_in if is_connector(config)]
    if words:
        parts.append(listing(words, MOST_NAMED))
    return "".join(f"; {p}" for p in parts)


def _refusal(comparison: Comparison) -> str:
    if comparison.decisive:
        return (
            f"No verdict: no tax of {len(comparison.decisive)} is known to have risen too far"
            f"{', but not of all it can be told' if comparison.unbounded else ''}{_missing(comparison)}{'' if comparison.unbounded else ' (--allow-missing makes it a pass)'}."
        )
    wanted = " or ".join(METRIC_WORDS[m] for m in comparison.deciding)
    absent = [x for x in comparison.in_neither if is_connector(x.config)]
    lost = [(c.config, c.why_not) for c in comparison.lost]
    reasons = [f"{names}: {clean(why)}" for names, why in _by_reason(lost)]
    reasons += [f"{c.config}: its change is {change_text(c)}" for c in comparison.unbounded]
    reasons += [f"in {OTHER[name]} {why}" for name, config, why in comparison.only_in if is_connector(config)]
    reasons += [
        f"{names} {'have' if ' and ' in names else 'has'} no tax in A and none in B: {clean(why)}"
        for names, why in _by_reason([(x.config, x.reason) for x in absent])
    ]
    if comparison.rate.per_s is None:
        reasons = [comparison.rate.sentence.rstrip(".")]
    return f"No verdict: no tax of {wanted} could be compared ({_joined(reasons) or 'neither has one'})."


def _joined(reasons: list[str]) -> str:
    more = [f"and {len(reasons) - MOST_NAMED} more"] if len(reasons) > MOST_NAMED else []
    return "; ".join([*reasons[:MOST_NAMED], *more])


def _by_reason(named: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """(names, reason), each reason once."""
    names: dict[str, dict[str, None]] = {}
    for name, reason in named:
        names.setdefault(reason, {})[name] = None
    return [(listing(list(own), MOST_NAMED), reason) for reason, own in names.items()]


def comparison_document(comparison: Comparison) -> ComparisonDocument:
    """The same for programs."""
    rate = comparison.rate
    return ComparisonDocument(
        a=side_document(comparison.a),
        b=side_document(comparison.b),
        confidence=comparison.confidence,
        fail_above=comparison.fail_above,
        deciding=comparison.deciding,
        rate=RateOfIt(rate.per_s, *rate.ref_safe_per_s, rate.sentence),
        notes=tuple(notes(comparison)),
        changes=tuple(_change_of_tax(change) for change in comparison.changes),
        differences=tuple(differences(comparison)),
        only_in=tuple(OnlyIn(*row) for row in comparison.only_in),
        in_neither=comparison.in_neither,
        verdict=VERDICTS[comparison.exit_code],
        exit_code=comparison.exit_code,
        sentence=sentence(comparison),
    )


def side_document(side: Side) -> SideOfIt:
    found = side.aggregate
    # A name that is no UTF-8 would leave a document that nobody can write.
    path = printable(str(side.path))
    return SideOfIt(path, found.campaign, found.date, found.provenance.versions.get("vllm"))


def _change_of_tax(change: Change) -> ChangeOfTax:
    return ChangeOfTax(
        config=change.config,
        metric=change.metric,
        unit=change.unit,
        a=_tax_of(change.a),
        b=_tax_of(change.b),
        change=change.value,
        reason=change.why_not or None,
        word=change.word,
        regression=change.regression,
    )


def _tax_of(found: Number) -> TaxOfSide:
    value = found.value
    return TaxOfSide(
        point=None if value is None else value.point,
        low=None if value is None else value.low,
        high=None if value is None else value.high,
        reason=found.reason if value is None else None,
        source="launch" if found.of_one_launch else "blocks",
        kind=found.kind,
        overloaded=found.overloaded,
    )


def comparison_json_text(found: Comparison) -> str:
    """The document in ASCII: a terminal takes U+009B, which JSON leaves as it is, for the beginning of a command."""
    return json.dumps(json.loads(to_json(comparison_document(found))), indent=2)
