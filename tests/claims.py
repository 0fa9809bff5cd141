"""Reads a page as a hostile reader does: every number, count, verdict, name and kind on it is held against ``aggregate.json``.

A page is taken apart into statements: a paragraph, a row of a table, a figure's title, its caption. A statement names whom it is
about (configuration, latency, reference rate, rate, shape, process), and is judged against that entry alone:

* rows of tables in ``claim_rows`` and ``claim_more_rows``, cell by cell;
* paragraphs in ``claim_sentences``, titles and captions in ``claim_figures``, with their numbers in order. How many of how many
  have a tax, who they are, which is the largest and what a verdict is called are worked out there anew from the aggregate;
* what a verdict's own sentence says, here: each number is one of that hypothesis, with its interval and its kind, and it ends in
  the outcome. Other prose has only numbers of its template or of ``PROSE``.

``report`` and ``figures`` are asked for fixed words alone, never for a number or for what holds for how many.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from claim_figures import Figures
from claim_frame import TEMPLATE, bare, frame_faults, lacking
from claim_more_rows import DECIDED, Rows
from claim_numbers import estimate, is_said, numbers_said, reads, same_end, the
from claim_values import Value, lengths, named_leaves, texts, values
from claim_verdicts import disagreements
from page_statements import Statement, taken_apart

from connector_tax.read.figures.words import RANDOM_WORDS
from connector_tax.read.report.host import NO_READINGS
from connector_tax.read.report.prior import SENTENCES
from connector_tax.read.report.provenance import GROUPS

# Words of our own that hold a number which is no measured one.
PROSE = (RANDOM_WORDS, NO_READINGS, *SENTENCES)
OF_HYPOTHESES = ("5 to 10 points were expected", "prior 45 %")
HYPOTHESES = {"1": ("H1",), "2": ("H2",), "3": ("H3",), "4": ("H4",), "5": ("H5", "H6")}


def faults(page: str, aggregate: Mapping[str, Any]) -> list[str]:
    """What a hostile reader finds on the page, a line each; empty where everything is the aggregate's."""
    reader, parts = PageReader(aggregate), taken_apart(page)
    found = parts.statements
    return [
        *lacking(parts, aggregate),
        *disagreements(aggregate),
        *reader.verdict_faults(),
        *reader.lost_provenance([s for s in found if s.section.startswith("Provenance")]),
        *(f for s in found for f in reader.of(s)),
        *repeated(found),
    ]


def repeated(found: Sequence[Statement]) -> list[str]:
    """Rows that stand twice in their table, and headings that stand twice: one of them has another's name."""
    heads = Counter((s.section, s.text) for s in found if not s.cells and s.section.endswith(f" / {s.text}"))
    twice = [f"{section}: is headed so {n} times" for (section, _), n in heads.items() if n > 1]
    rows = Counter(row_key(s) for s in found if s.cells and not s.section.startswith(("Cells", "Problems")))
    return twice + [f"{section}: stands {n} times: {text}" for (section, _, text), n in rows.items() if n > 1]


def row_key(row: Statement) -> tuple[str, str, str]:
    """Two rows with the same key say the same of the same."""
    return row.section, "" if row.cells[0] else row.above, row.text


class PageReader:
    """Of one aggregate."""

    def __init__(self, aggregate: Mapping[str, Any]) -> None:
        self.aggregate = aggregate
        self.rows, self.sentences = Rows(aggregate), Figures(aggregate)
        provenance = aggregate["provenance"]
        # Nobody knows the GPUs of a host of which no cell tells.
        nobody = {} if provenance.get("gpu") or provenance.get("versions") else {"gpu": None}
        asked = provenance["settings"]["phase_b_prime"].get("configs", provenance["order"].get("b_prime", []))
        order = {
            p: [c for c in ids if p != "b_prime" or c in asked] for p, ids in provenance["order"].items()
        }
        self.provenance = named_leaves("", {**provenance, **nobody, "order": order})
        every = [*values(aggregate), *lengths(aggregate)]
        planned = [(c.get("stopping") or {}).get("planned") or () for c in aggregate["cells"]]
        least = (provenance["settings"].get("cell") or {}).get("min_completed")
        looks = next(filter(None, planned), () if least is None else (least,))
        self.confidence = [v for v in every if v.path == "confidence"] + [v for n in looks for v in the(n)]
        self.of_verdicts = [v for v in every if v.path == "lengths" or v.path.startswith("hypotheses")]
        known = sorted({*texts(aggregate), *PROSE}, key=len, reverse=True)
        self.texts = re.compile(rf"(?<![\w.,])(?:{'|'.join(map(re.escape, known))})(?!\w)")

    def of(self, statement: Statement) -> list[str]:
        """What is wrong with one statement of the page."""
        if statement.section.partition(" / ")[0] == "Provenance":
            known = self.is_provenance(statement)
            return [] if known else [f"Provenance: {statement.text!r} is of unknown origin"]
        if (found := frame_faults(statement, self.aggregate)) is not None:
            return [f"{statement.section}: {f} in: {statement.text}" for f in found]
        try:
            found = (self.rows if statement.cells else self.sentences).faults(statement)
        except (LookupError, StopIteration, TypeError, ValueError) as error:
            found = [f"is about nothing that was measured ({error!r})"]
        if found is None:
            found = list(self._prose(statement))
        return [f"{statement.section}: {f} in: {statement.text}" for f in found]

    def is_provenance(self, statement: Statement) -> bool:
        """A value under its name, the title of a group of values, or what the section says of them all."""
        group = statement.section.partition(" / ")[2]
        if not group:
            return statement.text in self.provenance or not list(self._prose(statement))
        title, _, prefix = group.rpartition(": ")
        known = GROUPS.get(prefix) == title
        return known and (statement.text == group or f"{prefix}.{statement.text}" in self.provenance)

    def lost_provenance(self, found: Sequence[Statement]) -> Iterator[str]:
        """What was measured with and stands nowhere on the page."""
        names = (s.section.rpartition(": ")[2] for s in found)
        shown = {f"{name}.{s.text}" if " / " in s.section else s.text for name, s in zip(names, found, strict=True)}  # fmt: skip
        yield from (f"Provenance: {text!r} is not on the page" for text in sorted(self.provenance - shown))

    def _prose(self, statement: Statement) -> Iterator[str]:
        """Words that stand on every page; the confidence of intervals is the only number that differs."""
        text = " ".join(self.texts.sub(" ; ", statement.text).split())
        match = next((m for p in _TEMPLATE for t in (statement.text, text) if (m := p.fullmatch(t)) is not None), None)  # fmt: skip
        if match is None and re.search(r"\w", text):
            yield "is no sentence of the page's template"
        for said in numbers_said(text if match is None else " ; ".join(match.groups())):
            if said.ends is not None or not any(reads(v.number, v.unit, said.number, said.unit) for v in self.confidence):  # fmt: skip
                yield f"{said.text!r} is of unknown origin"

    def verdict_faults(self) -> list[str]:
        """What the sentences of the aggregate's verdicts say that their own numbers do not."""
        return [f for h in self.aggregate["hypotheses"] for f in self.of_verdict(h)] + list(self._criteria())

    def of_verdict(self, h: Mapping[str, Any]) -> list[str]:
        own = [v for v in self.of_verdicts if v.path == "lengths" or _is_of(v, h)]
        found, equal = [], h.get("at_equal_host_speed") or {}
        for told in (h, equal):
            sentence, outcome = str(told.get("sentence") or ""), str(told.get("outcome") or "")
            # What is at equal speed of the host is over blocks, and has no kind of its own.
            kind = h.get("kind") if told is h else None
            lost, rest = _by_length(sentence, told.get("numbers") or {})
            found += [*lost, *_unfound(self._bare(rest), own), *_outcome(sentence, outcome)]
            found += [*_kind(sentence, kind), *self._others(h, told)]
        return [f"Verdicts: {h['id']}: {f} in: {h['sentence']}" for f in found]

    def _others(self, h: Mapping[str, Any], told: Mapping[str, Any]) -> Iterator[str]:
        """Configurations that a decided verdict names beside its subject and that subject's parts."""
        sentence = str(told.get("sentence") or "")
        if told.get("outcome") not in DECIDED:
            return
        named = {c for c in self.aggregate["configs"] if c != "plain" and re.search(rf"(?<!\w){re.escape(c)}(?!\w)", sentence)}  # fmt: skip
        own = {h["subject"], *(h["numbers"].get("parts") or {})}
        # Which of NIXL's configurations is held against the subject is in the sentence alone.
        others = {c for c in named if h["id"] == "H2" and c.startswith("nixl")}
        if named != own | others or (h["id"] == "H2" and len(others) != 1):
            yield f"{' and '.join(sorted(named)) or 'nobody'} is named, and it is about {' and '.join(sorted(own))}"

    def _bare(self, sentence: str) -> str:
        for words in OF_HYPOTHESES:
            sentence = sentence.replace(words, " ; ")
        return self.texts.sub(" ; ", sentence)

    def _criteria(self) -> Iterator[str]:
        """The evidence of the first five is what the verdicts say; their table alone has the kind of each."""
        for c in self.aggregate["criteria"]:
            ids = HYPOTHESES.get(str(c["number"]), ())
            said = [str(h["sentence"]) for h in self.aggregate["hypotheses"] if h["id"] in ids]
            evidence = str(c["evidence"])
            for sentence in sorted(said, key=len, reverse=True):
                evidence = evidence.replace(sentence.removesuffix(ONE_LAUNCH), " ").replace(ONE_LAUNCH, " ")
            if said and numbers_said(self.texts.sub(" ; ", evidence)):
                yield f"Success criteria: {evidence.strip()!r} is no verdict's"


ONE_LAUNCH = " This is of one launch each: what launches differ by is not in the interval."


def _is_of(value: Value, hypothesis: Mapping[str, Any]) -> bool:
    return (value.facets.get("id"), value.facets.get("subject")) == (hypothesis["id"], hypothesis["subject"])


def _unfound(text: str, own: list[Value]) -> Iterator[str]:
    """Numbers of ``text`` that are none of ``own``, or have another interval than theirs."""
    for said in numbers_said(text):
        alike = [v for v in own if (v.ends is None) == (said.ends is None) and reads(v.number, v.unit, said.number, said.unit)]  # fmt: skip
        if not alike:
            yield f"{said.text!r} is of unknown origin"
        elif said.ends is not None and not any(
            all(same_end(e, v.unit, *end) for e, end in zip(v.ends or (), said.ends, strict=True))
            for v in alike
        ):
            yield f"{said.text!r} has another interval"


def _by_length(sentence: str, numbers: Mapping[str, Any]) -> tuple[list[str], str]:
    """What a trend says wrongly of one length, its tax and the rates of its cells; and the sentence without all that is right."""
    found, rates = [], numbers.get("rates_per_s") or {}
    differ = len({r for length in numbers.get("by_length") or {} for r in rates.get(length) or []}) > 1
    if "Per doubling" not in sentence or "by_length" not in numbers:
        return found, sentence
    if "by phase B's launches" not in sentence:
        found.append("that it is of phase B's launches is not said")
    for length, value in numbers["by_length"].items():
        if value["point"] is None:
            continue
        at = (
            f" ({' and '.join(f'{r:g}' for r in rates[length])} req/s)"
            if differ and rates.get(length)
            else ""
        )
        said = re.search(rf"(?<![\d,.]){length}: ([^\]]*(?:\]|interval\))){re.escape(at)}", sentence)
        one = numbers_said(said[1]) if said else []
        if said is None or len(one) != 1 or not is_said(estimate(value)[0], one[0]):
            found.append(f"{length}: {value['point']:.3g}{at} is not said")
        else:
            sentence = f"{sentence[: said.start()]} ; {sentence[said.end() :]}"
    several = list(map(str, numbers.get("averaged_over") or []))
    over = f" lengths {', '.join(several)}" if len(several) != 1 else f" length {several[0]} alone"
    head = "averaged over \\w+put" if len(several) != 1 else "at \\w+put"
    if not re.search(rf"{head}{over}(?:;| \()", sentence):
        found.append(f"{over!r} is not said")
    return found, sentence.replace(over, " ")


def _outcome(sentence: str, outcome: str) -> Iterator[str]:
    """The one of the three outcomes that a sentence names is that of its verdict."""
    named = {w for w in DECIDED if re.search(rf"\b{w}\b", sentence)}
    if named - {outcome}:
        yield f"{' and '.join(sorted(named))} is not {outcome!r}"


def _kind(sentence: str, kind: str | None) -> Iterator[str]:
    """A sentence may leave its kind to the verdict's own cell, and not say another."""
    if "one launch" in sentence and kind == "over blocks":
        yield "'of one launch' is over blocks"


def _template() -> list[re.Pattern[str]]:
    """Paragraphs, headings and summaries that the template itself says, with the little that is put into them."""
    text, found = TEMPLATE, []
    for body in re.findall(r"<(?:p|h3|h4|summary)[^>]*>(.*?)</(?:p|h3|h4|summary)>", text, re.DOTALL):
        pieces = [" ".join(piece.split()) for piece in re.split(r"{{.*?}}", bare(body))]
        # What is almost all put in says nothing of its own.
        if len(pieces) == 1 or sum(len(piece.split()) for piece in pieces) > 3:
            found.append(re.compile(r"\s*(.*?)\s*".join(map(re.escape, pieces))))
    return found


_TEMPLATE = _template()
