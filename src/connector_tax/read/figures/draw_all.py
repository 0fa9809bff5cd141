"""Every figure of a campaign: ``aggregate.json`` in, ``figures/`` out, replaced as a whole.

``index.json`` lists all of them with their captions, or with the reason for leaving them out. Figures for papers and slides lie in
``figures/paper/`` and ``figures/slides/``, with their captions as text; drawing the page's draws those that are there anew, so that none of
an earlier aggregate stays beside them.
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
from connector_tax.read.figures.captions import Caption, write_captions
from connector_tax.read.figures.forms import FORMS, Purpose
from connector_tax.read.figures.questions import source_note
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


def draw_figures(root: Path, purpose: Purpose = "page") -> list[Entry]:
    """Draw all figures of the campaign at ``root`` and return what ``index.json`` lists.

    Args:
        purpose: the page's go into ``figures/``, others into a folder of their name in it.

    Raises:
        ArtifactError: there is no aggregate, it has another form, or the disk is full.
    """
    folder = CampaignFolder(root)
    folder.links()
    aggregate = read_aggregate(folder.aggregate)
    temporary = folder.figures.with_name(".figures.partial")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    if purpose != "page":
        found = _for(purpose, aggregate, temporary)
        folder.figures.mkdir(exist_ok=True)
        publish_folder(temporary, folder.figures / purpose)
        return found
    entries = [_one(name, aggregate, temporary) for name in FIGURES]
    write_json(temporary / "index.json", msgspec.to_builtins(FigureIndex(figures=tuple(entries))))
    write_json(temporary / "omitted.json", {e.name: e.reason for e in entries if not e.drawn})
    for other in FORMS:
        if other != "page" and (folder.figures / other).is_dir():
            (temporary / other).mkdir()
            _for(other, aggregate, temporary / other)
    publish_folder(temporary, folder.figures)
    return entries


def _for(purpose: Purpose, aggregate: Aggregate, folder: Path) -> list[Entry]:
    """Figures and their captions for a paper or slides; the entries are the page's."""
    entries, captions = [], []
    for name in FIGURES:
        files: list[str] = []
        left_out: dict[str, str] = {}
        results: list[Drawn] = []
        for form in FORMS[purpose]:
            with drawing_style(name + form.suffix, form):
                result = FIGURES[name](aggregate)
                if isinstance(result, Omitted):
                    left_out[name + form.suffix] = clean(result.reason)
                    continue
                results.append(result)
                files += save(result.figure, folder, name)
        entry = _entry(name, results[0] if results else Omitted(next(iter(left_out.values()))))
        entries.append(entry)
        captions.append(Caption(entry, tuple(files), left_out))
    write_captions(captions, source_note(aggregate), folder, tex=purpose == "paper")
    return entries


def _one(name: str, aggregate: Aggregate, folder: Path) -> Entry:
    with drawing_style(name):
        result = FIGURES[name](aggregate)
        if isinstance(result, Drawn):
            save(result.figure, folder, name)
            write_text(folder / f"{name}.csv", _csv(result.data_rows, aggregate.measured_on.text))
    return _entry(name, result)


def _entry(name: str, result: Drawn | Omitted) -> Entry:
    number = int(name[3])
    if isinstance(result, Omitted):
        return Entry(name=name, number=number, drawn=False, reason=clean(result.reason))
    return Entry(
        name=name,
        number=number,
        drawn=True,
        title=clean(result.title, TITLE_LIMIT),
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
