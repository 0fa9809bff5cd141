"""A page taken apart into statements: a paragraph, a row of a table, the words above and below a figure; and all text that is in none."""

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser

from builders import ROOT


@dataclass
class Statement:
    """What is said in one place.

    Attributes:
        heads, cells: of a row of a table; ``text`` is all of it.
        tips: of each cell what is shown where a mouse rests on it.
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
    tips: list[str] = field(default_factory=list)


@dataclass
class Page:
    """
    Attributes:
        outside: text that is in no block that is read, and marks of its own that a page does not have.
    """

    statements: list[Statement]
    outside: list[str]


def statements(page: str) -> list[Statement]:
    return taken_apart(page).statements


def taken_apart(page: str) -> Page:
    found = _Page()
    # The page's own script says nothing; any other one is a mark that a page does not have. Drill-downs are of the raw results, and
    # held against those where they are tested.
    body = page.partition("<body>")[2].replace(f"<script>{SCRIPT}</script>", "")
    found.feed(re.sub(DRILL_DOWNS, "", body, flags=re.DOTALL))
    found.close()
    return Page(found.found, found.outside)


SCRIPT = "".join(
    (ROOT / "src" / "connector_tax" / "read" / "report" / name).read_text(encoding="utf-8")
    for name in ("report.js", "drill/drill.js")
)
DRILL_DOWNS = r'<section id="drill-downs">.*?</section>|<th>Drill-down</th>|<td class="drill">(?:<a [^>]*>open</a>)?</td>'
# What a page is made of. Text stands in the first alone: anything else is read by nobody.
BLOCKS = ("p", "dt", "dd", "figcaption", "summary", "h1", "h2", "h3", "h4", "td", "th", "pre", "a", "footer")
AROUND = (
    "body",
    "html",
    "main",
    "header",
    "nav",
    "div",
    "table",
    "thead",
    "tbody",
    "tr",
    "details",
    "dl",
    "figure",
)
INSIDE = ("b", "code", "q", "small", "span", "br", "img")
ATTRIBUTES = {"class", "id", "href", "src", "alt", "role"}


class _Page(HTMLParser):
    """HTML to statements; ``section`` is the headings above it."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Statement] = []
        self.outside: list[str] = []
        self.open: list[str] = []
        self.headings: dict[str, str] = {"h2": "head"}
        self.heads: list[str] = []
        self.cells: list[str] = []
        self.tips: list[str] = []
        self.text = self.figure = self.above = self.title = self.name = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = dict(attrs)
        self._known(tag, told)
        if tag == "p" and self.headings["h2"].startswith("head"):
            self.headings["h2"] = f"head {told.get('class')}"
        if tag == "figure":
            self.figure = f" {told.get('id')}"
        if tag in BLOCKS:
            self.text = ""
        elif tag in ("small", "br", "span"):
            self.text += " ; "
        elif tag == "tr":
            self.cells, self.tips = [], []
        elif tag == "table":
            self.heads = []
        elif tag == "img":
            self.title = (told.get("alt") or "").partition(": ")[2]
        if tag == "td":
            self.tips.append(told.get("title") or "")
        if tag not in ("br", "img", "meta"):
            self.open.append(tag)

    def _known(self, tag: str, told: dict[str, str | None]) -> None:
        if tag not in (*BLOCKS, *AROUND, *INSIDE):
            self.outside.append(f"<{tag}>")
        wanted = {*ATTRIBUTES, "title"} if tag == "td" else ATTRIBUTES
        self.outside += [f"<{tag} {name}={value}>" for name, value in told.items() if name not in wanted]
        if (tag == "img") != ("alt" in told):
            self.outside.append(f"<{tag}> with what is said of a picture")

    def handle_data(self, data: str) -> None:
        if not set(self.open) & set(BLOCKS) and data.strip():
            self.outside.append(data.strip())
        self.text += data

    def handle_comment(self, data: str) -> None:
        self.outside.append(f"<!--{data}-->")

    def handle_decl(self, decl: str) -> None:
        self.outside.append(f"<!{decl}>")

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop() != tag:
            pass
        text = " ".join(self.text.replace("\xa0", " ").split())
        if tag == "th":
            self.heads.append(text)
        elif tag == "td":
            self.cells.append(text)
        elif tag == "tr" and self.cells:
            self.above = self.cells[0] or self.above
            row = Statement(self.section, " | ".join(self.cells), self.heads, self.cells, above=self.above, tips=self.tips)  # fmt: skip
            self.found.append(row)
        elif tag == "tr":
            self._say(f"Heads of {self.section}", " | ".join(self.heads), heads=self.heads)
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
            self._say("Sections" if tag == "h2" else self.section, text)
        elif tag == "details":
            self.headings.pop("summary", None)
        elif tag == "dt":
            self.name = text
        elif tag == "dd":
            self._say(self.section, f"{self.name}: {text}")
        elif tag in ("p", "h1"):
            self._say(self.section, text)
        elif tag in ("a", "footer", "pre"):
            self._say({"a": "Links", "footer": "Footer"}.get(tag, f"{self.section} commands"), text)
        if tag in BLOCKS:
            self.text = ""

    def _say(self, section: str, text: str, heads: list[str] | None = None) -> None:
        self.found.append(Statement(section, text, heads or []))

    @property
    def section(self) -> str:
        return " / ".join(self.headings.values())
