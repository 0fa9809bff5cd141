"""A page altered in one place at a time, and how many of these places the claim checker finds.

    .venv/bin/python tests/alterations.py AGGREGATE.json

Every number, count, number of blocks, kind, verdict word and name of the page is altered once; what it becomes is drawn from a seeded
generator. What of a page is altered, by kind:

* ``number``: written as it was, off by 3 to 50 %, or by one in its last digit;
* ``sign``: plus for minus;
* ``another's number``: an estimate with its interval becomes that of another row of the same column;
* ``count``: one of ``3 of 7``, ``the other 5``, ``of 20 cells``, ``n 320``;
* ``blocks``: ``over 4 blocks`` becomes ``over 5 blocks``;
* ``kind``: ``of one launch`` is dropped or becomes ``over 4 blocks``, and the reverse;
* ``verdict``: ``WORDS``;
* ``name``: a configuration's label or id becomes another's;
* ``unit``: ``UNITS``;
* ``word``: ``SWAPS``, wherever they stand;
* ``verdict's sentence``: a number, an outcome or a name of what a verdict says, in the aggregate as on the page, so that no text gives
  it away.

Of the demo-like campaign of the tests and of the published one every kind is found in full. What nobody reads, and what is not altered
here: the pictures themselves and their CSV; provenance, which is compared as a whole; a row or a sentence that is left out, but for the
headline, the banner and the flags. Configurations with one label can trade rows. Whether a figure that is left out could have been drawn is not
asked.
"""

import json
import random
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from claim_numbers import NUMBER, TRIPLE
from claims import PageReader, row_key
from made_pages import page_of
from page_statements import Statement, statements

# What is said -> what it may become.
WORDS: dict[str, tuple[str, ...]] = {
    r"\bno tax found\b": ("tax", "gain", "not resolved here"),
    r"\b[Nn]ot resolved here\b": ("no tax found", "undetermined"),
    r"\bwider than 100 p": ("narrower than 100 p", "wider than 10 p"),
    r"\bin phase A(?=: )": ("in phase B", ""),
    r", each(?=: )": ("",),
    r"\bDrawn(?=: plain_matched_)": ("Not drawn",),
    r"\bdoes not count(?= \w)": ("counts",),
    r"\bdearest of these is\b": ("cheapest of these is", "dearest is"),
    r"\balso those between two steps\b": ("but none between two steps",),
    r"\bhas no usable cell\b": ("has no decoding steps",),
    r"(?:(?<=; )|(?<=\| )|^)tax(?=$|,| ;)": ("gain", "no tax found"),
    r"(?:(?<=; )|(?<=\| )|^)gain(?=$|,| ;)": ("tax", "no tax found"),
    r"\ba tax for\b": ("a gain for",),
    r"\ba gain for\b": ("a tax for",),
    r"\ba tax is found\b": ("a gain is found",),
    r"\bno difference is found for\b": ("a gain is found for",),
    r"\bnot known, since the interval is open, for\b": ("no difference is found for", "a tax for"),
    r"\bwhether it has a tax\b": ("it has a tax",),
    r"\bcosts at least\b": ("costs",),
    r"\bone without a number\b": ("one with a gain",),
    r"\bno (?:upper|lower) bound\b": ("0 %",),
    r"\ball of it\b": ("none of it",),
    r"\bno tax on\b": ("a tax on",),
    r"(?<=% )more(?= TTFT)": ("less",),
    r"\bis lower:": ("is higher:",),
    r"\bsupported\b": ("refuted", "undetermined"),
    r"\brefuted\b": ("supported", "undetermined"),
    r"\bundetermined\b": ("supported", "refuted"),
    r"\bnot testable\b": ("supported",),
    r"\bimplementation-cost-dominated\b": ("framework-cost-dominated", "mixed"),
    r"\bnot monotonic\b": ("monotonic",),
    r"(?<!not )\bmonotonic\b": ("not monotonic",),
    r"\bnot after the correction\b": ("",),
    r"\b[Aa] longer (?=one for|decoding)": ("a shorter ",),
    r"\b[Aa] shorter (?=one for|decoding)": ("a longer ",),
    r"\babove zero in\b": ("below zero in",),
    r"\bbelow (?:zero|it) in\b": ("above zero in",),
    r"\bthe largest of these taxes is\b": ("the lowest of these taxes is",),
    r"\bThe two taxes add up:": ("The two taxes interfere, together they cost more:",),
    r"\binterfere, together they cost more\b": ("add up", "share a cost, together they cost less"),
    r"\bshare a cost, together they cost less\b": ("add up",),
    r"\bis not told apart from zero\b": ("is told apart from zero",),
    r"\bno connector saturates earlier\b": ("every connector saturates earlier",),
    r"\bno other connector does\b": ("every other connector does",),
    r"\bsaturates? earlier\b": ("saturate later",),
    r"\bdoes not visibly drift\b": ("drifts",),
    r"\bPlain drifts\b": ("Plain does not visibly drift",),
    r"\bno visible change\b": ("changes",),
    r"(?<=\| )changes$": ("no visible change",),
    r"(?<=✓ )(?:reported|met)\b": ("not met",),
    r"(?<=✗ )not met\b": ("met",),
    r"(?<=\| )(?:valid|measured|same)(?=$| \|)": ("invalid", "different"),
    r"\b(?:above|below) zero(?=, of one launch)": ("not told apart from zero", "a tax"),
    r"\bnot told apart from zero(?=, of one launch)": ("above zero",),
    r"\bdid not keep up\b": ("kept up",),
    r"\b(?:or more before|or less: below)\b": ("or more or less",),
    r"\bthe engine settings of \w+ are not known\b": ("it switches no setting",),
}  # fmt: skip
# A unit -> another one.
UNITS = {
    r"(?<=\d) ?%": " pp",
    r"(?<=\d) pp\b": " %",
    r"(?<=\d) µs\b": " ms",
    r"(?<=\d) ms\b": " µs",
    r"(?<=\d) req/s": " s",
    r"\bpoints(?= \()": "%",
}
# What is true of one is not so of the other.
SWAPS = (
    ("with the connector", "without the connector"), ("without a connector", "with a connector"), ("TTFT", "TPOT"), ("TPOT", "TTFT"), ("p90", "p50"),
    ("ref_safe", "ref_load"), ("ref_load", "ref_safe"), ("Phase A", "Phase B"), ("phase A", "phase B"), ("phase B", "phase A"), ("Phase B", "Phase A"),
    ("median", "mean"), ("mean", "median"), ("prompt", "output"), ("scheduler", "worker"), ("more", "less"), ("longer", "shorter"), ("above", "below"),
    ("below", "above"), ("as a sum", "measured together"), ("measured together", "as a sum"), ("each", "together"), ("four of five", "nine of ten"),
    ("beyond", "within"), ("up to", "at least"), ("perhaps by nothing", "surely by something"), ("standard deviation", "standard error"),
    ("from", "to"), ("requests", "steps"), ("steps", "requests"), ("earlier", "later"), ("at ref_safe", "at every rate"), ("adds", "saves"),
    ("is spent in hooks", "is spent outside of hooks"), ("skipped", "failed"), ("Saturation begins", "Saturation ends"), ("one launch", "two launches"),
    ("in either", "in neither"), ("are not known", "are plain's"), ("the rest", "the framework"), ("keeps up", "fails"), ("and", "or"),
)  # fmt: skip
COUNTS = r"(?:(?<=for )|(?<=in )|(?<=of )|(?<=other )|(?<=earlier, )|(?<=; )|(?<=\| )|(?<=n )|(?<=and )|^)\d[\d,]*(?= of \d| connectors?\b| cells?\b| usable\b| launches\b| steps\b| requests\b| and \d| from\b)|(?<=any of )\d+|(?<=\d of )\d[\d,]*|(?<=the other )\d+|(?<=n )\d[\d,]*"
SHARES_OF = ("number", "sign", "another's number", "count", "blocks", "kind", "verdict", "name", "unit", "word", "verdict's sentence")  # fmt: skip


@dataclass(frozen=True)
class Altered:
    kind: str
    statement: Statement
    old: str
    new: str


def alterations(aggregate: Mapping[str, Any], page: str, seed: int = 13) -> Iterator[Altered]:
    """All places of the page, each altered once."""
    rng, own = random.Random(seed), [s for s in statements(page) if not s.section.startswith("Provenance")]
    names = _names(aggregate)
    columns: dict[tuple[str, int], list[str]] = defaultdict(list)
    for s in own:
        for k, cell in enumerate(s.cells):
            columns[s.section, k] += [m[0] for m in TRIPLE.finditer(cell)]
    for s in own:
        for k, text in enumerate(s.cells or [s.text]):
            others = columns[s.section, k]
            for kind, start, end, new in _places(text, names, others, rng):
                other = f"{text[:start]}{new}{text[end:]}"
                if other != text:
                    cells = [other if j == k else c for j, c in enumerate(s.cells)]
                    planted = replace(s, text=" | ".join(cells) or other, cells=cells)
                    yield Altered(kind, planted, text[start:end], new)


def _names(aggregate: Mapping[str, Any]) -> dict[str, list[str]]:
    """A label -> the other labels, and an id -> the other ids; plain's are words of every page."""
    configs = {c: v for c, v in aggregate["configs"].items() if not c.startswith("plain")}
    labels = [str(v.get("label") or c) for c, v in configs.items()]
    found = {n: [o for o in labels if o != n] for n in labels}
    found |= {c: [o for o in configs if o != c] for c in configs}
    return {n: others for n, others in found.items() if others}


def _places(
    text: str, names: Mapping[str, list[str]], others: list[str], rng: random.Random
) -> Iterator[tuple[str, int, int, str]]:
    """Kind, from where to where, and what stands there instead."""
    for m in re.finditer(rf"(?<![\w.,/])({NUMBER})(?![\w])", text):
        if (new := _off(m[1], rng)) != m[1]:
            yield "number", m.start(), m.end(), new
        if m[1][0] in "+−-" and float(re.sub("[−,]", "", m[1])):
            yield "sign", m.start(), m.start() + 1, "−" if m[1][0] == "+" else "+"
    for m in TRIPLE.finditer(text):
        if unlike := sorted({o for o in others if o != m[0]}):
            yield "another's number", m.start(), m.end(), rng.choice(unlike)
    for m in re.finditer(COUNTS, text):
        n = int(m[0].replace(",", ""))
        yield "count", m.start(), m.end(), f"{max(0, n + rng.choice((-2, -1, 1, 2))) if n else 1:,}"
    for m in re.finditer(
        r"\d+(?= (?:such )?blocks\b(?! and step))|(?<=[Oo]ver )\d+(?= and \d+ blocks)", text
    ):
        if not text[: m.start()].endswith("to "):
            yield "blocks", m.start(), m.end(), str(int(m[0]) + rng.choice((-1, 1)))
    for m in re.finditer(r",? ?of one launch(?: each)?\b", text):
        yield "kind", m.start(), m.end(), rng.choice(("", f"{', ' if m[0][0] == ',' else ' '}over 4 blocks of launches"))  # fmt: skip
    for m in re.finditer(r"\bover \d+ blocks(?: of launches)?", text, re.IGNORECASE):
        yield "kind", m.start(), m.end(), rng.choice(("of one launch", ""))
    for pattern, news in WORDS.items():
        for m in re.finditer(pattern, text):
            yield "verdict", m.start(), m.end(), rng.choice(news)
    for pattern, unit in UNITS.items():
        for m in re.finditer(pattern, text):
            yield "unit", m.start(), m.end(), unit
    for old, other in SWAPS:
        for m in re.finditer(rf"(?<!\w){re.escape(old)}(?!\w)", text):
            yield "word", m.start(), m.end(), other
    pattern = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    for m in re.finditer(rf"(?<![\w+])(?:{pattern})(?!\w)", text) if pattern else ():
        yield "name", m.start(), m.end(), rng.choice(names[m[0]])


def _off(number: str, rng: random.Random) -> str:
    """Off by 3 to 50 %, or by one in its last digit, written as it was."""
    mantissa, e, power = number.partition("e")
    digits = len(mantissa.partition(".")[2])
    value = abs(float(mantissa.replace(",", "").replace("−", "-")))
    other = value * (1 + rng.choice((-1, 1)) * rng.uniform(0.03, 0.5))
    if abs(other - value) < 0.5 * 10**-digits:
        other = value + 10**-digits
    sign = mantissa[0] if mantissa[0] in "+−-" else ""
    return sign + (f"{other:,.{digits}f}" if "," in mantissa else f"{other:.{digits}f}") + e + power


def altered_sentences(aggregate: Mapping[str, Any], seed: int = 13) -> Iterator[tuple[dict[str, Any], str]]:
    """Verdicts of which one number is another, or the outcome that their sentence names; and what was altered."""
    rng = random.Random(seed)
    for h in aggregate["hypotheses"]:
        text = h["sentence"]
        spots = [(m, _off(m[1], rng)) for m in re.finditer(rf"(?<![\w.,/])({NUMBER})(?![\w])", text)]
        for word, news in (("supported", ("refuted",)), ("refuted", ("undetermined",)), ("undetermined", ("supported",))):  # fmt: skip
            spots += [(m, rng.choice(news)) for m in re.finditer(rf"\b{word}\b", text)]
        for name, others in _names(aggregate).items():
            spots += [(m, rng.choice(others)) for m in re.finditer(rf"(?<!\w){re.escape(name)}(?!\w)", text) if name in aggregate["configs"]]  # fmt: skip
        for m, new in spots:
            if new != m[0]:
                yield {**h, "sentence": text[: m.start()] + new + text[m.end() :]}, m[0]


def shares(aggregate: Mapping[str, Any]) -> tuple[dict[str, float], dict[str, int], list[Altered]]:
    """Of each kind the share that is found, and how many there were; and those that are not found."""
    reader, found, all_of, missed = PageReader(aggregate), Counter[str](), Counter[str](), []
    page = page_of(aggregate)
    rows = {row_key(s) for s in statements(page) if s.cells}
    headings = {s.text for s in statements(page) if s.section.endswith(f" / {s.text}")}
    for one in alterations(aggregate, page):
        all_of[one.kind] += 1
        # A row and a heading stand on a page once.
        twice = row_key(one.statement) in rows if one.statement.cells else one.statement.text in headings
        if reader.of(one.statement) or twice:
            found[one.kind] += 1
        else:
            missed.append(one)
    for h, old in altered_sentences(aggregate):
        all_of["verdict's sentence"] += 1
        if reader.of_verdict(h):
            found["verdict's sentence"] += 1
        else:
            missed.append(Altered("verdict's sentence", Statement("Verdicts", h["sentence"]), old, ""))
    return {k: found[k] / n for k, n in all_of.items()}, dict(all_of), missed


def main() -> None:
    aggregate = json.loads(Path(sys.argv[1]).read_text())
    caught, counts, missed = shares(aggregate)
    for kind in SHARES_OF:
        print(f"{kind:20} {counts.get(kind, 0):6} {caught.get(kind, 1.0):7.1%}")
    for one in missed[:200]:
        print(f"{one.kind}: {one.old!r} -> {one.new!r} in [{one.statement.section}] {one.statement.text}")


if __name__ == "__main__":
    main()
