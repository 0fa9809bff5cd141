"""``report.html``: one self-contained page; style, figures and drill-downs are inside it, nothing is fetched.

It holds no time of building: the same inputs give the same bytes.
"""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.documents.aggregate import read_aggregate
from connector_tax.base.documents.figures import Entry, read_figure_index
from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import write_text
from connector_tax.base.opening import read_whole
from connector_tax.base.plan import read_campaign_file
from connector_tax.read.report.drill import view as drill
from connector_tax.read.report.drill.view import NONE, DrillDowns, drill_downs, grouped
from connector_tax.read.report.view import Page, cells_in_order, page_view

HERE = Path(__file__).parent
STYLES, SCRIPTS = (HERE / "report.css", drill.STYLE), (HERE / "report.js", drill.SCRIPT)
# Of the whole page. What figures and tables leave of it is the drill-downs' room.
MOST_PAGE_BYTES = 4_900_000


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure; ``uri`` is its picture, empty where it is left out."""

    entry: Entry
    uri: str = ""


def build_report(root: Path) -> Path:
    """Write ``report.html`` of the campaign at ``root``.

    Raises:
        ArtifactError: the aggregate or the figures are not there, or the disk is full.
    """
    folder = CampaignFolder(root)
    folder.links()
    aggregate = read_aggregate(folder.aggregate)
    campaign = read_campaign_file(folder.campaign_file) if folder.campaign_file.is_file() else None
    page, figures = page_view(aggregate, campaign), figures_view(folder)
    room = MOST_PAGE_BYTES - len(render(page, figures).encode())
    drills = drill_downs(root, cells_in_order(aggregate), room)
    write_text(folder.report, render(page, figures, drills))
    return folder.report


def render(page: Page, figures: Sequence[Figure], drills: DrillDowns = NONE) -> str:
    """The page's HTML; every value is escaped, since names come from files that people write.

    Args:
        drills: what can be opened of which cell; without them the page says what that needs.
    """
    environment = Environment(
        loader=FileSystemLoader([HERE, drill.HERE]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # Our own files and drawings, the only texts that are not escaped. The browser runs this script and no other.
    css, script = ("".join(path.read_text(encoding="utf-8") for path in paths) for paths in (STYLES, SCRIPTS))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    return environment.get_template("report.html.j2").render(
        page=page,
        figures=figures,
        drills=drills,
        drill_template=drill.TEMPLATE.name,
        groups=grouped(page.cells, drills),
        css=css,
        script=script,
        script_hash=f"sha256-{digest}",
    )


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
    """An SVG as a data URI, which keeps its ids apart from those of the others; there it runs no script."""
    try:
        data = read_whole(path)
    except FileNotFoundError as error:
        raise ArtifactError(f"{path}: no such file. Draw it again with connector-tax figures.") from error
    return "data:image/svg+xml;base64," + base64.b64encode(data).decode("ascii")
