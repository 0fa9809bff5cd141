"""Builds ``report.html``: one self-contained page with style, figures and drill-downs; nothing is fetched.

It has no build time, so the same inputs give the same bytes.
"""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from string import ascii_uppercase
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.documents.aggregate import Aggregate, read_aggregate
from connector_tax.base.documents.figures import Entry, read_figure_index
from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import printable, read_whole, write_text
from connector_tax.base.plan import config_of, read_campaign_file
from connector_tax.base.plan.start import state_of
from connector_tax.base.records.cell import phase_word
from connector_tax.read.figures.words import WORDS, label, launches_text, phase_text, problem_text
from connector_tax.read.ingest.cells import UNREADABLE
from connector_tax.read.report.drill import NONE, DrillDowns, read_drill_downs
from connector_tax.read.report.tables import Number, bare, named, number, tick
from connector_tax.read.report.tables import name as printed
from connector_tax.read.report.view import Left, Page, page_view

# The first is on every page, the others on pages with cells that can be opened.
STYLES = ("page.css", "vendor/uPlot.min.css", "drill.css")
SCRIPTS = ("page.js", "vendor/uPlot.iife.min.js", "drill.js")
# The page itself draws the other figures' numbers; the third of these matters only with saturation.
SHOWN = (6, 7, 8)
OF_SATURATION = 3
# Characters that need no escape in a data URI in an attribute.
PLAIN = " !$()*+,/:;=?@[]^_`{|}~.-"


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure; ``uri`` is its picture, empty if it is left out."""

    entry: Entry
    uri: str = ""


def build_report(root: Path) -> Path:
    """Write ``report.html`` of the campaign at ``root``, which may be unfinished.

    Raises:
        ArtifactError: the aggregate or the figures are missing, or the disk is full.
    """
    folder = CampaignFolder(root)
    aggregate = read_aggregate(folder.aggregate)
    page, figures = _page_of(folder, aggregate), figures_view(folder)
    drills = read_drill_downs(root, [row.key for _, rows in page.cells for row in rows])
    write_text(folder.report, render(page, figures, drills))
    return folder.report


def closing_lines(root: Path) -> str:
    """Return three lines: the report's path, its answer, and what to try next.

    Raises:
        ArtifactError: there is no readable aggregate.
    """
    folder = CampaignFolder(root)
    page = _page_of(folder, read_aggregate(folder.aggregate))
    answer, closing = _template("answer.html.j2"), _template("closing.txt.j2", autoescape=False)
    text = closing.render(
        page=page, answer=answer.render(page=page), root=root, report=folder.report.absolute()
    )
    return "\n".join(map(printable, text.splitlines()))


def _page_of(folder: CampaignFolder, aggregate: Aggregate) -> Page:
    # If the raw results are elsewhere, it is unknown which runs have ended.
    remaining = unfinished(folder) if folder.runs() or not aggregate.cells else None
    is_published = (PROJECT_ROOT / "published" / f"{aggregate.campaign}.tar.xz").is_file()
    return page_view(aggregate, remaining, is_published)


def unfinished(folder: CampaignFolder) -> Left | None:
    """Return what is left of a campaign's plan; None if all runs have ended or the plan is unknown.

    The page lists among its problems why cells are not compared with ``campaign.json``.
    """
    try:
        document = read_campaign_file(folder.campaign_file)
        config = config_of(document)
        remaining = state_of(config, folder, document.date).left
    except UNREADABLE:
        return None
    runs = sum(len(config.members(p)) for p in config.phases)
    phases = [
        (phase_word(p), ids if len(ids) < len(config.members(p)) else ()) for p, ids in remaining.items()
    ]
    return Left(runs - sum(map(len, remaining.values())), runs, phases) if remaining else None


def taxes_markdown(page: Page) -> str:
    """Return the page's table of taxes for an issue or a README, with its source."""
    return _template("taxes.md.j2", autoescape=False).render(page=page).strip()


@cache
def _template(name: str, *, autoescape: bool = True) -> Template:
    environment = Environment(  # nosec B701  # Markdown alone is not escaped
        loader=FileSystemLoader(WORDS),
        autoescape=autoescape,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "label": lambda code, kind: printable(label(kind, str(code))),
        "digits": "{:,.10g}".format,
        "tick": tick,
        "bare": bare,
        "name": printed,
        "number": number,
        "phase": phase_text,
        "phase_word": phase_word,
        "named": named,
        "launches": launches_text,
        "problem": problem_text,
    }
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    environment.tests["quantity"] = lambda value: isinstance(value, Number)
    return environment.get_template(name)


def render(page: Page, figures: Sequence[Figure], drills: DrillDowns = NONE) -> str:
    """Return the page's HTML; every value is escaped, since names come from files that people write.

    Args:
        drills: the cells that can be opened; without them the page says what that needs.
    """
    # Our own files and a library are the only unescaped texts. The browser runs no other script.
    css, script = (
        "\n".join((WORDS / name).read_text(encoding="utf-8") for name in names[: None if drills.of else 1])
        for names in (STYLES, SCRIPTS)
    )
    shown = (OF_SATURATION, *SHOWN) if page.knees else SHOWN
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    text = _template("page.html.j2").render(
        page=page,
        markdown=taxes_markdown(page),
        figures=[f for f in figures if f.entry.drawn and f.entry.number in shown],
        not_drawn=[f.entry for f in figures if not f.entry.drawn],
        drills=drills,
        letters=dict(zip((flag for flag, _ in page.flags), ascii_uppercase, strict=False)),
        css=css,
        script_hash=f"sha256-{digest}",
    )
    return text.replace("<script></script>", f"<script>{script}</script>")


def figures_view(folder: CampaignFolder) -> list[Figure]:
    """Return the figures that ``index.json`` lists.

    Raises:
        ArtifactError: it has another form, or names a file that is unreadable or not in ``figures/``.
    """
    index = read_figure_index(folder.figures / "index.json")
    return [
        Figure(entry, _picture(folder.figures / entry.files.svg) if entry.files else "")
        for entry in index.figures
    ]


def _picture(path: Path) -> str:
    """Return an SVG as a data URI, which separates its ids from other figures' and runs no script.

    It stays text, since base64 would take a fifth more.
    """
    try:
        data = read_whole(path)
    except FileNotFoundError as error:
        raise ArtifactError(
            f"{path}: no such file. Remove figures/ and draw it again with connector-tax report."
        ) from error
    # A line break means a space in SVG, and would be lost in a URL.
    return "data:image/svg+xml;charset=utf-8," + quote(data.replace(b"\n", b" "), safe=PLAIN)
