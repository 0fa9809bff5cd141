"""Parses a report page into tags, numbers and words, and checks its numbers against ``aggregate.json``."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

from connector_tax.base.units import exact_duration
from connector_tax.read.figures.words import WORDS

NUMBER = re.compile(r"[\d][\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")
AROUND = ".,;:()[]{}\"'“”"


class Reader(HTMLParser):
    """A page's tags, ids, numbers in ``data``, and the words around them."""

    VOID = ("meta", "img", "br", "link", "input", "hr", "col")
    UNSEEN = ("style", "script", "svg")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.numbers: list[tuple[dict[str, str | None], str]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "data":
            self.numbers.append((dict(attrs), ""))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "data" in self.open:
            attributes, text = self.numbers[-1]
            self.numbers[-1] = attributes, text + data
        elif not any(tag in self.open for tag in self.UNSEEN):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def check_numbers(aggregate: dict[str, Any], page: str) -> int:
    """Assert that every number of the page is in ``aggregate.json`` and reads the same; return their count.

    Numbers of the analysis are in ``data`` elements. Other words with digits are from a template or are texts
    of the aggregate.
    """
    # The hidden Markdown repeats the page.
    reader = Reader(re.sub(r"<pre id=\"markdown\" hidden>.*?</pre>", "", page, flags=re.DOTALL))
    every = list(_leaves(aggregate))
    known = {float(v) for v in every if isinstance(v, int | float) and not isinstance(v, bool)}
    # Captions give the confidence in percent.
    known.add(round(100 * aggregate["provenance"].get("confidence", 0.95), 9))
    # Names of blocks and lengths are keys.
    known |= {float(v) for v in every if isinstance(v, str) and re.fullmatch(r"\d+(\.\d+)?", v)}
    for attributes, text in reader.numbers:
        value, shown = float(str(attributes["value"])), _digits(text)
        if attributes.get("class") == "count":
            assert value == shown and value == int(value) >= 0
            continue
        assert value in known, (value, text)
        half = 0.5 * 10.0 ** -len(text.partition(".")[2])
        assert min(abs(shown - value), abs(shown - 100 * value)) <= half * 1.001, (value, text)
    strings = [str(v) for v in every if isinstance(v, str)]
    written = [re.sub(r"<[^>]+>", " ", f.read_text()) for f in WORDS.glob("*.*")]
    # Durations are given in hours, minutes and seconds.
    durations = [exact_duration(int(n)) for n in known if 0 <= n < 1e9]
    own = {word.strip(AROUND) for text in (*strings, *written, *durations) for word in text.split()}
    for word in reader.text.split():
        bare = word.strip(AROUND)
        if any(c.isdigit() for c in bare) and bare not in own:
            assert all(float(n.replace(",", "")) in known for n in NUMBER.findall(bare)), word
    return len(reader.numbers)


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for key, own in value.items():
            yield key
            yield from _leaves(own)
    elif isinstance(value, list | tuple):
        for own in value:
            yield from _leaves(own)
    else:
        yield value


def _digits(text: str) -> float:
    return float(text.replace(",", "").replace("\N{MINUS SIGN}", "-").replace("+", ""))
