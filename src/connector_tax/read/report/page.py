"""``report.html``: one self-contained page; style and figures are inside it, nothing is fetched.

It holds no time of building: the same inputs give the same bytes.
"""

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.documents.reading import as_json
from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import read_json, write_text
from connector_tax.base.forms import Form, misfit, named
from connector_tax.base.opening import bare, is_bare, read_whole
from connector_tax.base.plan import document_hash, read_campaign_file
from connector_tax.read.figures.foreign import reading
from connector_tax.read.figures.lookup import read_aggregate
from connector_tax.read.report.view import page_view

HERE = Path(__file__).parent
_NAME = named(is_bare, "no bare name")
INDEX: Form = {"figures": [{"name": _NAME, "number": int, "drawn": bool}]}
DRAWN: Form = {"title": str, "caption": str, "files": {"svg": _NAME, "csv": _NAME}}
OMITTED: Form = {"reason": str}


def build_report(root: Path) -> Path:
    """Write ``report.html`` of the campaign at ``root``.

    Raises:
        ArtifactError: the aggregate or the figures are not there, or the disk is full.
    """
    folder = CampaignFolder(root)
    folder.links()
    aggregate = read_aggregate(folder)
    document = read_campaign_file(folder.campaign_file) if folder.campaign_file.is_file() else None
    campaign: Mapping[str, Any] = as_json(document) if document is not None else {}
    config_hash = document_hash(document) if document is not None else None
    with reading(aggregate, folder.aggregate):
        page = page_view(aggregate, campaign, config_hash) | {"figures": figures_view(folder)}
        text = render(page)
    write_text(folder.report, text)
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
    css = (HERE / "report.css").read_text(encoding="utf-8")  # our own file, the only text that is not escaped
    return environment.get_template("report.html.j2").render(page=page, css=css)


def figures_view(folder: CampaignFolder) -> list[dict[str, Any]]:
    """What ``index.json`` lists.

    Raises:
        ArtifactError: it has another form, names a file that is not in ``figures/``, or one that cannot be read.
    """
    path = folder.figures / "index.json"
    index = read_json(path)
    fault = misfit(index, INDEX)
    for k, entry in enumerate(index["figures"] if fault is None else ()):
        fault = fault or misfit(entry, DRAWN if entry["drawn"] else OMITTED, f"figures[{k}]")
    if fault is not None:
        raise ArtifactError(f"{path}: {fault}. Draw the figures again with connector-tax figures.")
    return [_figure(folder, entry) for entry in index["figures"]]


def _figure(folder: CampaignFolder, entry: dict[str, Any]) -> dict[str, Any]:
    """One figure with its SVG as a data URI, which keeps its ids apart from those of the others; there it runs no script."""
    if not entry["drawn"]:
        return entry
    path = folder.figures / bare(entry["files"]["svg"], "figure")
    try:
        data = read_whole(path)
    except FileNotFoundError as error:
        raise ArtifactError(f"{path}: no such file. Draw it again with connector-tax figures.") from error
    return {**entry, "uri": "data:image/svg+xml;base64," + base64.b64encode(data).decode("ascii")}
