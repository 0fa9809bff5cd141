"""``report.html``: one self-contained page; style, figures and drill-downs are inside it, nothing is fetched.

It holds no time of building: the same inputs give the same bytes.
"""

import base64
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from string import ascii_uppercase
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.documents.aggregate import read_aggregate
from connector_tax.base.documents.figures import Entry, read_figure_index
from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import write_text
from connector_tax.base.opening import read_whole
from connector_tax.base.plan import config_of, read_campaign_file
from connector_tax.base.plan.start import standing
from connector_tax.base.records.cell import phase_word
from connector_tax.read.figures.labels import WORDS, label
from connector_tax.read.ingest.campaign import UNREADABLE
from connector_tax.read.report.drill import view as drill
from connector_tax.read.report.drill.view import NONE, DrillDowns, Drilling, grouped, read_drilling
from connector_tax.read.report.numbers import Number, bare, tick
from connector_tax.read.report.tables import name as printed
from connector_tax.read.report.view import Left, Page, cells_in_order, page_view

STYLES, SCRIPTS = (WORDS / "page.css", drill.STYLE), (WORDS / "page.js", drill.SCRIPT)
# The other figures' numbers are drawn on the page itself; of these the third says something where somebody saturates.
SHOWN = (6, 7, 8)
OF_SATURATION = 3
# What may stand in a data URI in an attribute as it is.
PLAIN = " !$()*+,/:;=?@[]^_`{|}~.-"
# What figures and tables leave of it is the drill-downs' room.
MOST_PAGE_BYTES = 4_900_000


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure; ``uri`` is its picture, empty where it is left out."""

    entry: Entry
    uri: str = ""


def build_report(root: Path) -> Path:
    """Write ``report.html`` of the campaign at ``root``, which may be unfinished.

    Raises:
        ArtifactError: the aggregate or the figures are not there, or the disk is full.
    """
    folder = CampaignFolder(root)
    folder.links()
    aggregate = read_aggregate(folder.aggregate)
    # Where the raw results are elsewhere nobody here knows which runs have ended.
    left = unfinished(folder) if folder.runs() or not aggregate.cells else None
    bundled = (PROJECT_ROOT / "published" / f"{aggregate.campaign}.tar.xz").is_file()
    page, figures = page_view(aggregate, left, bundled), figures_view(folder)
    drilling = read_drilling(root, cells_in_order(aggregate))
    text = fitting(drilling, lambda drills: render(page, figures, drills))
    write_text(folder.report, text)
    return folder.report


def unfinished(folder: CampaignFolder) -> Left | None:
    """Return what is left of a campaign's own plan; None where all has ended, and where the plan is not known.

    The page lists among its problems why cells are not held against ``campaign.json``.
    """
    try:
        document = read_campaign_file(folder.campaign_file)
        config = config_of(document)
        left = standing(config, folder, document.date).left
    except UNREADABLE:
        return None
    runs = sum(len(config.members(p)) for p in config.phases)
    phases = [(phase_word(p), ids if len(ids) < len(config.members(p)) else ()) for p, ids in left.items()]
    return Left(runs - sum(map(len, left.values())), runs, phases) if left else None


def fitting(
    drilling: Drilling, rendered: Callable[[DrillDowns], str], most_bytes: int = MOST_PAGE_BYTES
) -> str:
    """The page with all drill-downs as finely drawn as it has room for; where it has none for all, with fewer."""
    # What lies beside the drawings is the same in each of them, and found once.
    beside = 0
    for parts, cells in drilling.choices:
        drawn = drilling.drawn_bytes(parts, cells)
        if beside + drawn <= most_bytes or not cells:
            text = rendered(drilling.at(parts, cells))
            size = len(text.encode())
            if size <= most_bytes or not cells:
                return text
            beside = size - drawn
    raise AssertionError("the last choice has no cell")


def taxes_markdown(page: Page) -> str:
    """Return the page's table of taxes for an issue or a README, with its source."""
    return _template("taxes.md.j2", autoescape=False).render(page=page).strip()


@cache
def _template(name: str, *, autoescape: bool = True) -> Template:
    environment = Environment(  # nosec B701  # Markdown alone is not escaped
        loader=FileSystemLoader([WORDS, drill.HERE]),
        autoescape=autoescape,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"label": _label, "digits": _digits, "tick": tick, "bare": bare, "name": printed}
    environment.tests["quantity"] = lambda value: isinstance(value, Number)
    return environment.get_template(name)


def _label(code: object, kind: str) -> str:
    return label(kind, str(code))


def _digits(value: float) -> str:
    return f"{value:,.10g}"


def render(page: Page, figures: Sequence[Figure], drills: DrillDowns = NONE) -> str:
    """The page's HTML; every value is escaped, since names come from files that people write.

    Args:
        drills: what can be opened of which cell; without them the page says what that needs.
    """
    # Our own files and drawings, the only texts that are not escaped. The browser runs this script and no other.
    css, script = ("".join(path.read_text(encoding="utf-8") for path in paths) for paths in (STYLES, SCRIPTS))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    return _template("page.html.j2").render(
        page=page,
        markdown=taxes_markdown(page),
        figures=[f for f in figures if f.entry.drawn and _is_shown(page, f)],
        not_drawn=[f.entry for f in figures if not f.entry.drawn],
        drills=drills,
        letters=dict(zip((flag for flag, _ in page.flags), ascii_uppercase, strict=False)),
        drill_template=drill.TEMPLATE.name,
        groups=grouped([row for _, rows in page.cells for row in rows], drills),
        css=css,
        script=script,
        script_hash=f"sha256-{digest}",
    )


def _is_shown(page: Page, figure: Figure) -> bool:
    return figure.entry.number in SHOWN or (figure.entry.number == OF_SATURATION and bool(page.knees))


def figures_view(folder: CampaignFolder) -> list[Figure]:
    """What ``index.json`` lists.

    Raises:
        ArtifactError: it has another form, names a file that is not in ``figures/``, or one that cannot be read.
    """
    index = read_figure_index(folder.figures / "index.json")
    return [
        Figure(entry, _picture(folder.figures / entry.files.svg) if entry.files else "")
        for entry in index.figures
    ]


def _picture(path: Path) -> str:
    """An SVG as a data URI, which keeps its ids apart from those of the others; there it runs no script.

    As text: in base64 it would take a fifth more, of a page that has to stay small.
    """
    try:
        data = read_whole(path)
    except FileNotFoundError as error:
        raise ArtifactError(f"{path}: no such file. Draw it again with connector-tax figures.") from error
    # A line's end is a blank to SVG, and would be lost in an address.
    return "data:image/svg+xml;charset=utf-8," + quote(data.replace(b"\n", b" "), safe=PLAIN)
