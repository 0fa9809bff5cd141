"""Every figure of a campaign: ``aggregate.json`` in, ``figures/`` out, replaced as a whole.

``index.json`` lists all of them with their captions, or with the reason for leaving them out.
"""

import csv
import io
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.documents.aggregate import Aggregate, read_aggregate
from connector_tax.base.documents.figures import Entry, FigureIndex, Files
from connector_tax.base.files import publish_folder, write_json, write_text
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
from connector_tax.read.figures.style import Drawn, Omitted, Row, drawing_style, save
from connector_tax.read.figures.words import TITLE_LIMIT, clean

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


def draw_figures(root: Path) -> list[Entry]:
    """Draw all figures of the campaign at ``root`` and return what ``index.json`` lists.

    Raises:
        ArtifactError: there is no aggregate, it has another form, or the disk is full.
    """
    folder = CampaignFolder(root)
    folder.links()
    aggregate = read_aggregate(folder.aggregate)
    temporary = folder.figures.with_name(".figures.partial")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    entries = [_one(name, aggregate, temporary) for name in FIGURES]
    write_json(temporary / "index.json", msgspec.to_builtins(FigureIndex(figures=tuple(entries))))
    write_json(temporary / "omitted.json", {e.name: e.reason for e in entries if not e.drawn})
    publish_folder(temporary, folder.figures)
    return entries


def _one(name: str, aggregate: Aggregate, folder: Path) -> Entry:
    number = int(name[3])
    with drawing_style(name):
        result = FIGURES[name](aggregate)
        if isinstance(result, Omitted):
            return Entry(name=name, number=number, drawn=False, reason=clean(result.reason))
        save(result.figure, folder, name)
    write_text(folder / f"{name}.csv", _csv(result.data_rows))
    return Entry(
        name=name,
        number=number,
        drawn=True,
        title=clean(result.title, TITLE_LIMIT),
        caption=clean(result.caption, 4000),
        files=Files(svg=f"{name}.svg", png=f"{name}.png", csv=f"{name}.csv"),
    )


def _csv(data_rows: list[Row]) -> str:
    columns = list(dict.fromkeys(key for row in data_rows for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(data_rows)
    return text.getvalue()
