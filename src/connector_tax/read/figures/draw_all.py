"""Draws every figure of a campaign from ``aggregate.json`` into ``figures/``, which is replaced as a whole.

``index.json`` lists all with their captions, or the reason for leaving them out. Figures for papers are in
``figures/paper/``; drawing the page's figures redraws them, so that none stays from an earlier aggregate.
"""

import csv
import io
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.documents.aggregate import Aggregate, read_aggregate
from connector_tax.base.documents.figures import Entry, FigureIndex, Files
from connector_tax.base.files import publish_folder, write_json, write_text
from connector_tax.read.figures import bars, lines
from connector_tax.read.figures.style import FORMS, Drawn, Omitted, Row, drawing_style, save
from connector_tax.read.figures.words import clean

FIGURES: dict[str, Callable[[Aggregate], Drawn | Omitted]] = {
    name: partial(draw, name=name)
    for name, draw in {
        "fig1_ttft_vs_rate": lines.draw_latency,
        "fig2_tpot_vs_rate": lines.draw_latency,
        "fig3_throughput": lines.draw_throughput,
        "fig4_tax_bars": bars.draw_bars,
        "fig5_shape_heatmaps": bars.draw_shapes,
        "fig6_step_cdf": lines.draw_durations,
        "fig7_decomposition": bars.draw_decomposition,
        "fig8_additivity": bars.draw_additivity,
        "fig9_attribution": lines.draw_attribution,
    }.items()
}


def draw_figures(root: Path, purpose: str = "page") -> list[Entry]:
    """Draw all figures of the campaign at ``root`` and return the entries of ``index.json``.

    Args:
        purpose: ``page`` draws into ``figures/``, others into a folder in it.

    Raises:
        ArtifactError: there is no aggregate, it has another form, or the disk is full.
    """
    folder = CampaignFolder(root)
    aggregate = read_aggregate(folder.aggregate)
    temporary = folder.figures.with_name(".figures.partial")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    if purpose != "page":
        entries = _draw(aggregate, temporary, purpose)
        folder.figures.mkdir(exist_ok=True)
        publish_folder(temporary, folder.figures / purpose)
        return entries
    entries = _draw(aggregate, temporary, "page")
    if (folder.figures / "paper").is_dir():
        (temporary / "paper").mkdir()
        _draw(aggregate, temporary / "paper", "paper")
    publish_folder(temporary, folder.figures)
    return entries


def _draw(aggregate: Aggregate, folder: Path, purpose: str) -> list[Entry]:
    entries = []
    for name, draw in FIGURES.items():
        for form in FORMS[purpose]:
            with drawing_style(name + form.suffix, form):
                result = draw(aggregate)
                if isinstance(result, Drawn):
                    save(result.figure, folder, name)
        if isinstance(result, Drawn) and purpose == "page":
            write_text(folder / f"{name}.csv", _csv(result.data_rows, aggregate.measured_on.text))
        entries.append(entry_of(name, result))
    if purpose == "page":
        write_json(folder / "index.json", msgspec.to_builtins(FigureIndex(figures=tuple(entries))))
        write_json(folder / "omitted.json", {e.name: e.reason for e in entries if not e.drawn})
    return entries


def entry_of(name: str, result: Drawn | Omitted) -> Entry:
    number = int(name[3])
    if isinstance(result, Omitted):
        return Entry(name=name, number=number, drawn=False, reason=clean(result.reason))
    return Entry(
        name=name,
        number=number,
        drawn=True,
        title=result.title,
        caption=clean(result.caption, 4000),
        files=Files(svg=f"{name}.svg", png=f"{name}.png", csv=f"{name}.csv"),
    )


def _csv(data_rows: list[Row], source: str) -> str:
    columns = [*dict.fromkeys(key for row in data_rows for key in row), "source"]
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(row | {"source": source} for row in data_rows)
    return text.getvalue()
