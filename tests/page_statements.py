"""A page taken apart into statements: a paragraph, a row of a table, the words above and below a figure."""

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser


@dataclass
class Statement:
    """What is said in one place.

    Attributes:
        heads, cells: of a row of a table; ``text`` is all of it.
        beside: the other half of a figure's words: the title may leave to the caption what its intervals hold.
        above: what the nearest row above has in its first cell, for rows that leave theirs empty.
    """

    section: str
    text: str
    heads: list[str] = field(default_factory=list)
    cells: list[str] = field(default_factory=list)
    beside: str = ""
    above: str = ""
    is_caption: bool = False


def statements(page: str) -> list[Statement]:
    found = _Page()
    found.feed(page.partition("<body>")[2])
    return found.found


class _Page(HTMLParser):
    """HTML to statements; ``section`` is the headings above it."""

    BLOCKS = ("p", "dt", "dd", "figcaption", "summary", "h1", "h2", "h3", "h4")

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Statement] = []
        self.headings: dict[str, str] = {"h2": "head"}
        self.heads: list[str] = []
        self.cells: list[str] = []
        self.text = ""
        self.figure = ""
        self.above = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = dict(attrs)
        if tag == "p" and self.headings["h2"].startswith("head"):
            self.headings["h2"] = f"head {told.get('class')}"
        if tag == "figure":
            self.figure = f" {told.get('id')}"
        if tag in (*self.BLOCKS, "td", "th", "pre"):
            self.text = ""
        elif tag in ("small", "br", "span"):
            self.text += " ; "
        elif tag == "tr":
            self.cells = []
        elif tag == "table":
            self.heads = []
        elif tag == "img":
            self.title = (told.get("alt") or "").partition(": ")[2]

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_endtag(self, tag: str) -> None:
        text = " ".join(self.text.replace("\xa0", " ").split())
        if tag == "th":
            self.heads.append(text)
        elif tag == "td":
            self.cells.append(text)
        elif tag == "tr" and self.cells:
            self.above = self.cells[0] or self.above
            row = Statement(self.section, " | ".join(self.cells), self.heads, self.cells, above=self.above)
            self.found.append(row)
        elif tag == "figcaption":
            # The number of the figure itself is counted, not measured.
            caption = re.sub(r"^Figure \d\.", "", text).partition("Numbers: figures/")[0]
            section = f"Figures {self.figure}"
            self.found.append(Statement(section, self.title, beside=caption))
            self.found.append(Statement(section, caption, beside=self.title, is_caption=True))
        elif tag in ("h2", "h3", "h4", "summary"):
            levels = ["h2", "h3", "h4", "summary"]
            # A summary belongs to the heading above it, and what is folded away belongs to the summary.
            self.headings = {
                k: v for k, v in self.headings.items() if levels.index(k) < levels.index(tag)
            } | {tag: text}
            if tag != "h2":
                self.found.append(Statement(self.section, text))
        elif tag == "details":
            self.headings.pop("summary", None)
        elif tag == "dt":
            self.name = text
        elif tag == "dd":
            self.found.append(Statement(self.section, f"{self.name}: {text}"))
        elif tag in ("p", "h1"):
            self.found.append(Statement(self.section, re.sub(r"^Figure \d(?= is left out)", "", text)))

    @property
    def section(self) -> str:
        return " / ".join(self.headings.values())
