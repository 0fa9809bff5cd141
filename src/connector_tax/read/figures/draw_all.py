"""Every figure of a campaign: ``aggregate.json`` in, ``figures/`` out, replaced as a whole.

``index.json`` lists all of them with their captions, or with the reason for leaving them out.
"""

import csv
import io
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import publish_folder, read_json, write_json, write_text
from connector_tax.read.figures import (
    fig1_ttft_vs_rate,
    fig2_tpot_vs_rate,
    fig3_throughput,
    fig4_tax_bars,
    fig5_shape_heatmaps,
    fig6_step_cdf,
    fig7_decomposition,
    fig8_additivity,
    fig9_attribution,
)
from connector_tax.read.figures.foreign import reading
from connector_tax.read.figures.lookup import Aggregate
from connector_tax.read.figures.style import Drawn, Omitted, Row, drawing_style, save
from connector_tax.read.figures.words import TITLE_LIMIT, clean

SCHEMA = 1
AGGREGATE_SCHEMA = 1

FIGURES: dict[str, Callable[[Aggregate], Drawn | Omitted]] = {
    "fig1_ttft_vs_rate": fig1_ttft_vs_rate.draw,
    "fig2_tpot_vs_rate": fig2_tpot_vs_rate.draw,
    "fig3_throughput": fig3_throughput.draw,
    "fig4_tax_bars": fig4_tax_bars.draw,
    "fig5_shape_heatmaps": fig5_shape_heatmaps.draw,
    "fig6_step_cdf": fig6_step_cdf.draw,
    "fig7_decomposition": fig7_decomposition.draw,
    "fig8_additivity": fig8_additivity.draw,
    "fig9_attribution": fig9_attribution.draw,
}


def read_aggregate(folder: CampaignFolder) -> Aggregate:
    """``aggregate.json`` of a campaign.

    Raises:
        ArtifactError: missing, not JSON, or of another schema.
    """
    return read_aggregate_file(folder.aggregate)


def read_aggregate_file(path: Path) -> Aggregate:
    """The same, wherever it lies."""
    value = read_json(path)
    if not isinstance(value, dict) or value.get("schema_version") != AGGREGATE_SCHEMA:
        found = value.get("schema_version") if isinstance(value, dict) else None
        raise ArtifactError(
            f"{path}: schema {found!r}, this version reads {AGGREGATE_SCHEMA}. "
            "Make it again with connector-tax analyze."
        )
    return value


def draw_figures(root: Path) -> list[dict[str, Any]]:
    """Draw all figures of the campaign at ``root`` and return what ``index.json`` lists.

    Raises:
        ArtifactError: there is no aggregate, or the disk is full.
    """
    folder = CampaignFolder(root)
    folder.links()
    aggregate = read_aggregate(folder)
    temporary = folder.figures.with_name(".figures.partial")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    with reading(aggregate, folder.aggregate):
        entries = [_one(name, aggregate, temporary) for name in FIGURES]
    write_json(temporary / "index.json", {"schema": SCHEMA, "figures": entries})
    write_json(temporary / "omitted.json", {e["name"]: e["reason"] for e in entries if not e["drawn"]})
    publish_folder(temporary, folder.figures)
    return entries


def _one(name: str, aggregate: Aggregate, folder: Path) -> dict[str, Any]:
    with drawing_style(name):
        result = FIGURES[name](aggregate)
        entry: dict[str, Any] = {"name": name, "number": int(name[3])}
        if isinstance(result, Omitted):
            return entry | {"drawn": False, "reason": clean(result.reason)}
        files = save(result.figure, folder, name)
    write_text(folder / f"{name}.csv", _csv(result.data_rows))
    return entry | {
        "drawn": True,
        "title": clean(result.title, TITLE_LIMIT),
        "caption": clean(result.caption, 4000),
        "files": {**files, "csv": f"{name}.csv"},
    }


def _csv(data_rows: list[Row]) -> str:
    columns = list(dict.fromkeys(key for row in data_rows for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(data_rows)
    return text.getvalue()
