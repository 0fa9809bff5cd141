"""Reads a page as a hostile reader does: every number in it is looked for in ``aggregate.json``, with its interval and its kind.

A page is taken apart into statements: a paragraph, a row of a table, a figure's title with its caption. Each number of a
statement has to be what some value of the aggregate reads like, among those that the statement can be about: the part of the
aggregate that its section shows (``SCOPES``), the configurations, latencies and reference rates that it names. All numbers
of a row come from one group of entries (one cell, one tax). A number in front of brackets is one whose interval is in the
brackets; a number that has an interval never stands without it. What is of one launch says so, and what is over blocks says
over how many. Numbers of the page's own prose (a threshold, a definition) are those of its template and of ``PROSE``.
"""

import math
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from builders import ROOT
from claim_values import Value, derived, named_leaves, pairs, texts, values
from page_statements import Statement, statements

from connector_tax.figures.rate_lines import CRITERIA
from connector_tax.figures.words import RANDOM_WORDS
from connector_tax.records.connector import PLAIN_AGAIN
from connector_tax.report.headline import FLAGS
from connector_tax.report.host import NO_READINGS
from connector_tax.report.prior import SENTENCES
from connector_tax.report.qualifiers import FLAG_MEANINGS

# Words of our own that hold a number which is no measured one.
PROSE = (
    *(
        RANDOM_WORDS,
        NO_READINGS,
        *SENTENCES,
        *FLAG_MEANINGS.values(),
        *FLAGS.values(),
        *(w for _, w in CRITERIA.values()),
    ),
    *(
        "up to 30 % apart counts as additive",
        "without the slowest 0.1 %",
        "about 0.4 µs of the recorder each",
    ),
    *(
        "percentile of plain - 1",
        "Whiskers at 0.5:",
        "in four of five campaigns",
        "in nine of ten steps",
        "that of one step in ten was",
        "per 1,000 blocks",
    ),
    *("5 to 10 points were expected", "a fixed piece of work took the host 10 % longer", "(GPU, per cell)"),
    *("samples of the queue, one a second", "prior 45%", "Prompt x output"),
)
REFERENCES = ("reference_rates/ref_safe_per_s", "reference_rates/ref_load_per_s")
# Section -> the keys of the aggregate that it is about, and what the entries behind one row of it have in common.
SCOPES: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    (r"^head banner", ("provenance/virtual_gpu", "provenance/host", "cells/health"), ()),
    (r"^head", ("main_taxes", "taxes", *REFERENCES), ()),
    (r"^Verdicts", ("hypotheses", "lengths"), ("id", "subject")),
    (r"/ Taxes at every shape", ("taxes", "main_taxes"), ("config", "reference", "cell_id")),
    (r"/ At ref_", ("main_taxes", "taxes"), ("config", "reference")),
    (r"/ The host over", ("host_drift", "repeats"), ()),
    (r"/ Repeated launches", ("repeats",), ("config", "metric", "reference")),
    (r"/ The same measured", ("taxes",), ("config",)),
    (r"/ What load adds", ("amplification",), ("config",)),
    (r"/ What a tax is made of.*two parts", ("two_parts",), ("config", "metric")),
    (r"/ What a tax is made of", ("decomposition",), ("config", "metric")),
    (r"/ Engine settings", ("engine_diff",), ()),
    (r"/ Where the microseconds", ("attribution", "cells/cpu", "cells/health"), ("config", "hook", "part")),
    (r"/ What recording costs", ("observer_effect",), ("config", "metric")),
    (r"/ What each engine process", ("cells/cpu",), ("config", "cell_id")),
    (r"/ What the host did", ("cells/host",), ()),
    (r"/ The virtual GPU", ("cells/health",), ("config",)),
    (r"/ Conversations", ("cells", "taxes"), ("config", "cell_id")),
    (r"/ By cached blocks", ("growth",), ("config",)),
    (r"^Taxes", (), ()),
    (r"^Outputs", ("outputs",), ("config", "phase")),
    (r"^Success criteria", ("hypotheses", "criteria", "lengths"), ()),
    (r"^Configurations", ("saturation",), ()),
    (r"^Figures.*fig[12]_", ("cells", "saturation", *REFERENCES), ()),
    (r"^Figures.*fig3_", ("cells", "saturation"), ()),
    (r"^Figures.*fig[48]_", ("main_taxes", *REFERENCES, "hypotheses"), ()),
    (r"^Figures.*fig5_", ("taxes", "main_taxes", *REFERENCES), ()),
    (r"^Figures.*fig6_", ("cells/step", "taxes", *REFERENCES), ()),
    (r"^Figures.*fig7_", ("main_taxes", "decomposition", *REFERENCES), ()),
    (r"^Figures.*fig9_", ("attribution", *REFERENCES), ()),
    (r"^Cells", ("cells",), ("index",)),
    (r"^Flags", (), ()),
    (r"^Problems", (), ()),
    (r"^Provenance", (), ()),
    (r"^How to reproduce", (), ()),
)
# Of the words of one row a statement is about those that it names, and about all where it names none.
APART = (("ttft", "tpot"), ("p50", "p90", "p99"), ("ref_safe", "ref_load"))
NUMBER = r"[+−-]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[+-]\d+)?"
UNIT = r"(?:\s?(%|pp|points|µs|ms|s|req/s|MHz|MiB|°C|W|h)(?![\w]))?"
END = rf"({NUMBER}){UNIT}|no lower bound|no upper bound|unbounded|no bound|\?|∞|–"
TRIPLE = re.compile(
    rf"(?<![\w.,/])({NUMBER}){UNIT}(?:\s?;[^\d\[|;]*)*\s?(?:\[({END}), ({END})\]{UNIT}|\(no interval\))"
)
WORDED = re.compile(rf"costs ({NUMBER}) % (?:more|less)( .*?) interval ({END}) to ({END})[,.]")
SINGLE = re.compile(rf"(?<![\w.,/])({NUMBER}){UNIT}(?![\w])")
OF = re.compile(rf"(?<![\w.,/])({NUMBER}) of ({NUMBER})(?![\w%.])")
# Of a list that is cut short; the whole of it is in the figure's CSV.
MORE = re.compile(r"and \d+ more(?=[.;,:]|$)")
SCALES = {"%": 100.0, "pp": 100.0, "points": 100.0}


def faults(page: str, aggregate: Mapping[str, Any]) -> list[str]:
    """What a hostile reader finds on the page, a line each; empty where every number is the aggregate's."""
    reader = PageReader(aggregate)
    return [fault for s in statements(page) for fault in reader.of(s)]


class PageReader:
    """Of one aggregate."""

    def __init__(self, aggregate: Mapping[str, Any]) -> None:
        self.values = [*values(aggregate), *derived(aggregate)]
        self.pairs = set(pairs(aggregate))
        self.provenance = named_leaves("", aggregate["provenance"])
        self.about: dict[tuple[Any, ...], list[Value]] = {}
        labels = {c: str(v.get("label") or c) for c, v in (aggregate.get("configs") or {}).items()}
        # The longest first: LMCache is a part of Mooncake + LMCache.
        labels[PLAIN_AGAIN] = PLAIN_AGAIN
        self.names = sorted(
            ((n, c) for c, label in labels.items() for n in (label, c)), key=lambda x: -len(x[0])
        )
        known = sorted({*texts(aggregate), *PROSE}, key=len, reverse=True)
        self.texts = re.compile(rf"(?<![\w.,])(?:{'|'.join(map(re.escape, known))})(?!\w)")

    def of(self, statement: Statement) -> list[str]:
        if statement.section == "Provenance":
            known = statement.text in self.provenance
            return [] if known else [f"Provenance: {statement.text!r} is of unknown origin"]
        scope, alike = _scope(statement.section)
        named = frozenset(self._named(f"{statement.section} {statement.text}"))
        whole = self._without_texts(f"{statement.text} {statement.beside}")
        if not statement.cells:
            about = self._about(self._own(scope, named), f"{statement.section} {statement.text}".lower())
            # How many requests and steps there were is said of all that a figure shows.
            beside = self._own(scope, frozenset()) if statement.section.startswith("Figures") else about
            found = list(self._unfound(self._without_texts(statement.text), about, whole, beside))
        else:
            heads = (
                statement.heads
                if len(statement.heads) == len(statement.cells)
                else [""] * len(statement.cells)
            )
            # A table of several latencies names them in its second column.
            latency = next((c for c in statement.cells[1:2] if c.startswith(("TTFT", "TPOT", "median"))), "")
            row = f"{statement.section} {statement.cells[0]} {latency}".lower()
            cells = [
                (self._without_texts(c), f"{row} {head.lower()}")
                for head, c in zip(heads, statement.cells, strict=True)
            ]
            cells = [(text, context) for text, context in cells if re.search(r"\d", text)]
            groups = self._groups(scope, named, alike)
            readings = (
                [f for text, context in cells for f in self._unfound(text, self._about(g, context), whole)]
                for g in groups
            )
            found = min(readings, key=len)
        return [f"{statement.section}: {f} in: {statement.text}" for f in found]

    @cache  # noqa: B019, a reader lives as long as one page is read
    def _own(self, scope: tuple[str, ...], named: frozenset[str]) -> list[Value]:
        """Those that a section shows, of those that are named."""
        if named:
            return [v for v in self._own(scope, frozenset()) if v.of is None or v.of in named]
        return [
            v
            for v in self.values
            if v.path == "confidence" or any(f"{v.path}/".startswith(f"{k}/") for k in scope)
        ]

    @cache  # noqa: B019
    def _groups(
        self, scope: tuple[str, ...], named: frozenset[str], alike: tuple[str, ...]
    ) -> list[list[Value]]:
        found: dict[tuple[str | None, ...], list[Value]] = {}
        for value in self._own(scope, named):
            found.setdefault(tuple(value.facets.get(k) for k in alike), []).append(value)
        # What is nobody's own may stand in every row.
        anyones = found.pop((None,) * len(alike), [])
        return [anyones + group for group in found.values()] or [anyones]

    def _about(self, values: list[Value], context: str) -> list[Value]:
        """Those that are about what the statement names."""
        named = tuple(tuple(w for w in words if w in context) for words in APART)
        key = (id(values), named)
        if key not in self.about:
            self.about[key] = [
                v
                for v in values
                if all(_is_about(v.words, own, words) for own, words in zip(named, APART, strict=True))
            ]
        return self.about[key]

    def _without_texts(self, text: str) -> str:
        return self.texts.sub(" ; ", MORE.sub(" ", _TEMPLATE.sub(" ", text)))

    def _named(self, text: str) -> set[str]:
        found = set()
        for name, config in self.names:
            if name in text:
                found.add(config)
                text = text.replace(name, " ")
        if found and "without a connector" in text:
            found.add("plain")
        return found

    def _unfound(
        self, text: str, values: list[Value], whole: str, beside: list[Value] | None = None
    ) -> Iterator[str]:
        for match in WORDED.finditer(text):
            ends = (match[4], match[7])
            yield from self._triple(match[1], "%", [(e, "%") for e in ends], values, match[0], whole)
        text = WORDED.sub(r"\2", text)
        for match in TRIPLE.finditer(text):
            number, unit, _, low_n, low_u, _, high_n, high_u, after = match.groups()
            unit = unit or after or low_u or high_u
            ends = [(low_n if low_n else None, low_u or unit), (high_n if high_n else None, high_u or unit)]
            yield from self._triple(number, unit, ends, values, match[0], whole)
        text = TRIPLE.sub(" ", text)
        for match in OF.finditer(text):
            if (int(_float(match[1])), int(_float(match[2]))) not in self.pairs:
                yield f"{match[0]!r} counts nothing"
        text = OF.sub(" ", text)
        for match in SINGLE.finditer(text):
            if not any(
                v.ends is None and _reads(v.number, v.unit, match[1], match[2]) for v in beside or values
            ):
                bare = any(
                    v.ends is not None and _reads(v.number, v.unit, match[1], match[2]) for v in values
                )
                yield f"{match[0]!r} {'stands without its interval' if bare else 'is of unknown origin'}"

    def _triple(
        self,
        number: str,
        unit: str | None,
        ends: list[tuple[str | None, str | None]],
        values: list[Value],
        said: str,
        whole: str,
    ) -> Iterator[str]:
        alike = [v for v in values if v.ends is not None and _reads(v.number, v.unit, number, unit)]
        if not alike:
            yield f"{said!r} is of unknown origin"
            return
        same = [
            v
            for v in alike
            if all(_same_end(e, v.unit, *end) for e, end in zip(v.ends or (), ends, strict=True))
        ]
        if not same:
            yield f"{said!r} has another interval"
            return
        told = _kinds(whole)
        kinds = {v.kind for v in same}
        if None in kinds or kinds & told:
            return
        if told or ("of one launch" in kinds and any(v.found for v in same)):
            yield f"{said!r} is {' or '.join(map(str, kinds))}"


def _kinds(text: str) -> set[str]:
    """What the statement says that intervals hold."""
    over = [
        n
        for found in re.findall(r"[Oo]ver ((?:\d+,? (?:and )?)+)blocks", text)
        for n in re.findall(r"\d+", found)
    ]
    told = {f"over {n} blocks" for n in over} | ({"over blocks"} if over else set())
    return told | ({"of one launch"} if "one launch" in text.lower() else set())


def _is_about(value: str, named: tuple[str, ...], words: tuple[str, ...]) -> bool:
    """Of words that tell things apart, ``value`` has one that is named, or none."""
    others = any(w in value for w in words if w not in named)
    return not named or not others or any(w in value for w in named)


def _scope(section: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    for pattern, keys, alike in SCOPES:
        if re.search(pattern, section):
            return keys, alike
    return (), ()


@cache
def _float(text: str) -> float:
    return float(text.replace(",", "").replace("−", "-"))


def _reads(value: float, unit: str, text: str, said: str | None) -> bool:
    """Whether ``text`` is how ``value`` is rounded, in a unit that it can be said in."""
    if said not in {"ratio": ("%", "pp", "points", None), "us": ("µs", None), "ms": ("ms", "s", None), "rate": ("req/s", None),
                    "count": (None,), "p": (None,), "hours": ("h",), "number": (None, "MHz", "°C", "W", "MiB", "µs")}[unit]:  # fmt: skip
        return False
    scaled = value * (0.001 if (unit, said) == ("ms", "s") else SCALES.get(said or "", 1.0))
    want, digits = _float(text), len(text.partition(".")[2])
    # Most are far off, and rounding takes time; two digits are within 5 % of what they stand for.
    if abs(scaled - want) > max(0.06 * abs(want), 10.0**-digits):
        return False
    return _rounded(scaled, digits, text) == want


def _rounded(value: float, digits: int, text: str) -> float:
    if "e" in text:
        return float(f"{value:.{max(0, len(text.partition('e')[0].replace('.', '').lstrip('+−-')) - 1)}e}")
    fixed = round(float(f"{value:.{digits}f}"), digits)
    if fixed == _float(text):
        return fixed
    # Numbers of so many digits, as medians in milliseconds are: 3, 4, or the two of a p.
    return next(
        (g for k in (2, 3, 4) if (g := float(f"{value:.{k}g}")) == _float(text) and abs(value) < 10**k),
        math.nan,
    )


def _same_end(end: float | None, unit: str, text: str | None, said: str | None) -> bool:
    return text is None if end is None else text is not None and _reads(end, unit, text, said)


def _template() -> re.Pattern[str]:
    """What the template itself says with a number in it: a few words on either side."""
    text = (ROOT / "src" / "connector_tax" / "report" / "report.html.j2").read_text().partition("<main>")[2]
    text = re.sub(r"{%.*?%}|{{.*?}}|<[^>]+>", " \x00 ", text, flags=re.DOTALL)
    found = set()
    for piece in text.split("\x00"):
        words = piece.split()
        for k, word in enumerate(words):
            if re.search(r"\d", word):
                found.add(r"\s+".join(map(re.escape, words[max(0, k - 2) : k + 3])))
    return re.compile(
        "|".join(sorted((f for f in found if " " in f.replace(r"\s", " ")), key=len, reverse=True))
    )


_TEMPLATE = _template()
