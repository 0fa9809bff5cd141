"""What captions and problems say of launches that are lost, or that a phase does not ask for."""

import sys
from pathlib import Path
from typing import Any

from connector_tax.base.documents.aggregate import aggregate_of
from connector_tax.read.figures.draw_all import FIGURES
from connector_tax.read.figures.style import Drawn

sys.path.insert(0, str(Path(__file__).parents[2]))
from mutations import MUTATIONS


def made(name: str, folder: Path) -> dict[str, Any]:
    return MUTATIONS[name].made(folder)


def test_figure_8_names_the_second_launch_of_plain_that_cost_its_taxes_a_block(tmp_path: Path) -> None:
    drawn = FIGURES["fig8_additivity"](aggregate_of(made("lost block of plain's second launch", tmp_path)))
    assert isinstance(drawn, Drawn)
    assert "Excluded cells: plain_again r1/r4_256x16 (" in drawn.caption


def test_figure_5_names_the_cell_of_phase_a_whose_tax_another_phase_stands_in_for(tmp_path: Path) -> None:
    drawn = FIGURES["fig5_shape_heatmaps"](aggregate_of(made("lost cell of a connector", tmp_path)))
    assert isinstance(drawn, Drawn)
    assert "Excluded cells: mooncake_both a/r4_256x16 (" in drawn.caption


def test_a_configuration_that_had_a_say_in_the_rates_and_is_gone_is_named(tmp_path: Path) -> None:
    value = made("everything of a connector lost", tmp_path)
    (problem,) = [p for p in value["problems"] if p["subject"] == "reference_rates.json"]
    assert (problem["code"], problem["names"]) == ("no_say_in_rates", ["mooncake_both"])


def test_launches_whose_requests_failed_tell_of_the_host_all_the_same(tmp_path: Path) -> None:
    value = made("requests of plain's block failed", tmp_path)
    assert [e["n_launches"] for e in value["host_drift"]] == [10]
    assert value["repeats"] == []
