"""A connector that was measured is in every figure of its phase, or the caption names it."""

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
from mutations import MUTATIONS

from connector_tax.base.documents.aggregate import aggregate_of
from connector_tax.read.figures.draw_all import FIGURES
from connector_tax.read.figures.style import Drawn, drawing_style


def caption(name: str, aggregate: dict[str, Any]) -> str:
    with drawing_style(name):
        drawn = FIGURES[name](aggregate_of(aggregate))
    assert isinstance(drawn, Drawn), name
    return drawn.caption


@pytest.mark.parametrize(
    ("campaign", "config", "figures"),
    [
        ("huge taxes", "mooncake_both", ("fig4_tax_bars", "fig5_shape_heatmaps", "fig7_decomposition")),
        ("hooks unheard", "nixl_both", ("fig9_attribution",)),
        ("connector that fakes hits", "decode_bench", ("fig5_shape_heatmaps",)),
    ],
)
def test_a_measured_connector_without_a_number_is_named(
    campaign: str, config: str, figures: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.fsync", lambda _: None)
    aggregate = MUTATIONS[campaign].made(tmp_path / "campaign")
    for name in figures:
        assert f"Without a number here: {config}." in caption(name, aggregate)
    if campaign == "huge taxes":  # its cells do not keep up at any rate, so it has no line
        for name in ("fig1_ttft_vs_rate", "fig2_tpot_vs_rate"):
            lost = caption(name, aggregate).partition("No point:")[2].partition(".")[0]
            assert config in lost and "4 req/s" in lost
