"""``report.html``: one self-contained page; style and figures are inside it, nothing is fetched.

It holds no time of building: the same inputs give the same bytes.
"""

import base64
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from connector_tax.artifacts.layout import CampaignFolder
from connector_tax.errors import ArtifactError
from connector_tax.figures.draw_all import read_aggregate
from connector_tax.figures.lookup import mapping, rows
from connector_tax.files import read_json, write_text
from connector_tax.plan import document_hash
from connector_tax.report.view import page_view

HERE = Path(__file__).parent


def build_report(root: Path) -> Path:
    """Write ``report.html`` of the campaign at ``root``.

    Raises:
        ArtifactError: the aggregate or the figures are not there, or the disk is full.
    """
    folder = CampaignFolder(root)
    aggregate = read_aggregate(folder)
    index = read_json(folder.figures / "index.json")
    campaign = mapping(read_json(folder.campaign_file)) if folder.campaign_file.is_file() else {}
    config_hash = document_hash(dict(campaign)) if "config" in campaign else None
    page = page_view(aggregate, campaign, config_hash)
    page["figures"] = [_figure(folder, entry) for entry in rows(mapping(index).get("figures"))]
    write_text(folder.report, render(page))
    return folder.report


def render(page: dict[str, Any]) -> str:
    """The page's HTML; every value is escaped, since names come from files that people write."""
    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    css = Markup((HERE / "report.css").read_text(encoding="utf-8"))  # our own file, not data
    return environment.get_template("report.html.j2").render(page=page, css=css)


def _figure(folder: CampaignFolder, entry: Any) -> dict[str, Any]:
    """One figure with its SVG as a data URI, which keeps its ids apart from those of the others."""
    figure = dict(entry)
    if figure.get("drawn"):
        path = folder.figures / str(mapping(figure.get("files")).get("svg"))
        try:
            data = path.read_bytes()
        except OSError as error:
            raise ArtifactError(
                f"{path}: cannot be read ({error.strerror}). Draw it again with scripts/plot_connector_tax.py."
            ) from error
        figure["uri"] = "data:image/svg+xml;base64," + base64.b64encode(data).decode("ascii")
    return figure
