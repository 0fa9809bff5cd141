"""A campaign for tests to damage, and the results of the workflow's own scripts."""

import html
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

from builders import DATE, SMALL
from invented_server import Behaviour

from connector_tax.read.analysis import analyse
from connector_tax.read.figures import draw_all
from connector_tax.read.figures.draw_all import draw_figures
from connector_tax.read.figures.style import FORM
from connector_tax.read.report.manifest import build_manifest
from connector_tax.read.report.page import build_report

SECTIONS: dict[str, Any] = {
    **SMALL,
    "connectors": ["plain", "noop_connector", "mooncake_both"],
    "phase_b": {"input_tokens": [64, 256], "output_tokens": [8, 16]},
    "analysis": {"bootstrap_draws": 200},
}
PLAIN = Behaviour(noise=0.05, capacity_per_s=6.0)
BEHAVIOURS = {
    "plain": PLAIN,
    "noop_connector": PLAIN.taxed(0.05, hooks_us=(2.0, 1.0, 1.0)),
    "mooncake_both": replace(PLAIN.taxed(0.3), capacity_per_s=3.0),
}
# The cell that most tests damage: the no-op connector's at ref_safe.
CONFIG, CELL = "noop_connector", "r2_256x16"
RUN = f"{DATE}_{CONFIG}/phase_a"
METRICS = {"ttft_p90", "tpot_p90", "step_p50_us", "callback_p50_us", "unexplained_us"}


@dataclass(frozen=True)
class Result:
    aggregate: dict[str, Any]
    problems: list[tuple[str, str]]
    page: str
    drawn: int
    manifest: str

    def taxes(self, config: str = "", phase: str = "", cell_id: str = "") -> dict[tuple[str, ...], Any]:
        return {
            tuple(t[k] for k in ("config", "phase", "cell_id", "reference", "metric")): t
            for t in self.aggregate["taxes"]
            if t["config"].startswith(config)
            and t["phase"].startswith(phase)
            and t["cell_id"].startswith(cell_id)
        }

    def cells(self) -> dict[tuple[str, ...], Any]:
        """Return cells without the facts that depend on others of their configuration."""
        told = {"saturated", "saturation_criteria"}
        return {
            (c["config"], c["phase"], c["cell_id"]): {k: v for k, v in c.items() if k not in told}
            for c in self.aggregate["cells"]
        }

    def says(self, where: str, what: str) -> bool:
        """Return whether one row of the page's table of problems names both."""
        return any(where == w and what in text for w, text in self.problems)


def but_for_ends(entries: dict[tuple[str, ...], Any], *lost: str) -> dict[tuple[str, ...], Any]:
    """Return cells or taxes, those at the load of a lost cell without interval bounds.

    Cells of one rate and shape together determine their block length, so the bounds depend on the lost one.
    """
    return {k: _without_ends(v) if v["cell_id"] in lost else v for k, v in entries.items()}


def _without_ends(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_ends(v) for k, v in value.items() if k not in ("low", "high", "verdict")}
    return value


@contextmanager
def unrendered() -> Iterator[None]:
    """Write figures as empty pictures: rendering takes most of the time of reading a campaign."""

    def blank(figure: object, folder: Path, name: str) -> None:
        for suffix in FORM.get().formats:
            (folder / f"{name}.{suffix}").write_text("<svg></svg>")

    with mock.patch.object(draw_all, "save", blank):
        yield


def read(root: Path, *, draw: bool = True) -> Result:
    """Analyse and report a campaign; without ``draw``, the page shows the figures that exist."""
    analyse(root)
    with unrendered():
        if draw:
            draw_figures(root)
        build_report(root)
    build_manifest(root, root / "MANIFEST.md")
    page = (root / "report.html").read_text()
    section = page.partition('id="problems"')[2].partition("</details>")[0]
    found = re.findall(r"<li><code>(.*?)</code>: (.*?)</li>", section, re.DOTALL)
    index = json.loads((root / "figures" / "index.json").read_text())["figures"]
    return Result(
        json.loads((root / "aggregate.json").read_text()),
        [(html.unescape(where), html.unescape(what)) for where, what in found],
        html.unescape(re.sub(r"<[^>]+>", " ", page.split("<body>")[1])),
        sum(figure["drawn"] for figure in index),
        (root / "MANIFEST.tsv").read_text(),
    )
