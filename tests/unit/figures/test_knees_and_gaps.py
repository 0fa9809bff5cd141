"""Figure 3 is achieved against requested throughput; Figure 4's bars are as long as their taxes are large."""

import numpy as np
import pytest
from pictures import drawn
from whole_aggregate import Aggregate, example

from connector_tax.read.figures.bars import GAP
from connector_tax.read.figures.style import FORMS, Drawn


def figure(name: str, aggregate: Aggregate) -> Drawn:
    found = drawn(name, aggregate, FORMS["page"][0])
    assert isinstance(found, Drawn)
    return found


def test_figure_3_has_the_line_of_a_server_that_keeps_up_and_names_the_knees() -> None:
    aggregate = example()
    (axes,) = figure("fig3_throughput", aggregate).figure.axes
    lines = [(line.get_xdata(), line.get_ydata()) for line in axes.get_lines()]
    dashed, *others = lines
    assert (
        list(dashed[0])
        == list(dashed[1])
        == sorted({c["rate_per_s"] for c in aggregate["cells"] if c["phase"] == "a"})
    )
    cells = {
        (c["rate_per_s"], c["effective_throughput_per_s"])
        for c in aggregate["cells"]
        if c["phase"] == "a" and c["usable"]
    }
    drawn_points = {(float(x), float(y)) for xs, ys in others for x, y in zip(xs, ys, strict=True)}
    assert drawn_points <= cells and len(drawn_points) > 15
    knees = {s["saturation_rate_per_s"] for s in aggregate["saturation"].values()} - {None}
    assert {t.get_text() for t in axes.texts} == {f"{knee:g} req/s" for knee in knees}


@pytest.mark.parametrize("largest", [0.4, 80.0])
def test_figure_4_has_one_kind_of_axis_and_draws_the_gap(largest: float) -> None:
    """Also where one saturated configuration has hundreds of times the others' tax."""
    aggregate = example()
    tax = next(
        t for t in aggregate["main_taxes"] if (t["reference"], t["metric"]) == ("ref_load", "ttft_p90")
    )
    tax |= {"point": largest, "low": largest * 0.9, "high": largest * 1.1}
    config = tax["config"]
    safe = next(
        t for t in aggregate["main_taxes"]
        if (t["config"], t["reference"], t["metric"]) == (config, "ref_safe", "ttft_p90")
    )  # fmt: skip
    added = next(a for a in aggregate["amplification"] if (a["config"], a["metric"]) == (config, "ttft_p90"))
    gap = largest - safe["point"]
    added |= {"point": gap, "low": gap - 0.1, "high": gap + 0.1}
    panels = figure("fig4_tax_bars", aggregate).figure.axes
    assert {axes.get_xscale() for axes in panels} == {"linear"}
    ends = [
        line.get_xdata()
        for line in panels[0].get_lines()
        if line.get_color() == GAP and line.get_linestyle() == "-"
    ]
    assert any(np.allclose(sorted(x), sorted([safe["point"], largest])) for x in ends)
    assert sum("gap" in t.get_text() for axes in panels for t in axes.texts) == len(ends) * 2
