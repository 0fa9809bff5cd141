"""Every figure from a whole aggregate, and from every way an aggregate can be poor."""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from whole_aggregate import EXAMPLE, Aggregate, no_number, number

from connector_tax.base.documents.aggregate import aggregate_of
from connector_tax.read.figures.draw_all import FIGURES
from connector_tax.read.figures.style import Drawn, Omitted, drawing_style

NOTHING = {"point": None, "low": None, "high": None}
Mutilation = Callable[[Aggregate], None]


@pytest.fixture(scope="module")
def example() -> Aggregate:
    return json.loads(EXAMPLE.read_text())


def drawn(name: str, aggregate: Aggregate, render: bool = False) -> Drawn | Omitted:
    with drawing_style(name):
        result = FIGURES[name](aggregate_of(aggregate))
        if isinstance(result, Drawn) and render:
            result.figure.set_dpi(40)
            result.figure.canvas.draw()
        return result


def assert_not_empty(result: Drawn) -> None:
    for axes in result.figure.axes:
        if axes.axison:
            marks = [*axes.lines, *axes.patches, *axes.collections]
            assert marks, f"empty axes in {result.title!r}"
    assert result.data_rows
    assert len(result.title) > 20
    assert "n = " in result.caption or "n unknown" in result.caption


@pytest.mark.parametrize("name", FIGURES)
def test_a_whole_aggregate_gives_every_figure(name: str, example: Aggregate) -> None:
    """Nothing is left out of a campaign in which everything needed was measured; captions give its own confidence."""
    result = drawn(name, example, render=True)
    assert isinstance(result, Drawn)
    assert_not_empty(result)
    other = copy.deepcopy(example)
    other["provenance"]["confidence"] = 0.8
    changed = drawn(name, other)
    assert isinstance(changed, Drawn) and "95 % interval" not in changed.caption
    assert changed.caption == result.caption.replace("95 % interval", "80 % interval")


def skipped(config: str) -> dict[str, str]:
    return {"code": "skipped", "detail": f"no module for {config}"}


def _drop_config(config: str) -> Mutilation:
    def apply(a: Aggregate) -> None:
        for key in ("cells", "taxes", "main_taxes", "amplification", "decomposition", "attribution"):
            a[key] = [x for x in a[key] if x["config"] != config]
        a["configs"][config] |= {"status": "skipped", "reason": skipped(config)}
        if config == "noop_connector":
            for row in a["decomposition"]:
                row["parts"] = 0
                row["framework"] = row["implementation"] = no_number("noop_connector has no usable cell here")

    return apply


def _measured(a: Aggregate) -> list[dict[str, Any]]:
    return [cell for cell in a["cells"] if cell["usable"]]


def _null_percentiles(a: Aggregate) -> None:
    for cell in _measured(a):
        for key in ("ttft_ms", "tpot_ms", "e2e_ms"):
            cell[key] = {q: no_number("failed") for q in cell[key]}
    for tax in (*a["taxes"], *a["main_taxes"]):
        tax |= {**NOTHING, "available": False, "reason": "no percentile"}
    for row in a["decomposition"]:
        row["total"] = no_number("no percentile")


def _no_steps(a: Aggregate) -> None:
    a["step_timing_available"] = False
    for cell in a["cells"]:
        cell["step"] = {"available": False, "reason": "patch does not fit"}
    for key in ("taxes", "main_taxes"):
        a[key] = [t for t in a[key] if t["unit"] == "ratio"]
    a["attribution"] = []


def _no_phase(*phases: str) -> Mutilation:
    def apply(a: Aggregate) -> None:
        a["cells"] = [c for c in a["cells"] if c["phase"] not in phases]
        a["taxes"] = [t for t in a["taxes"] if t["phase"] not in phases]
        if "a" in phases:
            a["decomposition"], a["attribution"], a["main_taxes"] = [], [], []

    return apply


def _only_plain(a: Aggregate) -> None:
    for config in list(a["configs"]):
        if config != "plain":
            _drop_config(config)(a)


def _all_invalid(a: Aggregate) -> None:
    for cell in a["cells"]:
        cell |= {
            "verdict": "invalid",
            "usable": False,
            "reasons": [{"code": "invalid", "detail": "client stalled"}],
        }
    a["taxes"] = a["main_taxes"] = []


def _no_reference(a: Aggregate) -> None:
    a["reference_rates"], a["taxes"], a["main_taxes"], a["saturation"] = None, [], [], {}


def _parts(a: Aggregate) -> list[dict[str, Any]]:
    """Every number of Figures 7 and 9."""
    split = [row[p] for row in a["decomposition"] for p in ("total", "flags", "framework", "implementation")]
    return split + [v for e in a["attribution"] for v in (e["difference_us"], *e["parts"])]


def _in_two(row: dict[str, Any], reason: str) -> None:
    rest = row["total"]["point"] - row["framework"]["point"]
    row |= {"parts": 2, "flags": no_number(reason)}
    row["implementation"] = number(rest, rest - 0.01, rest + 0.01)


def _settings_not_seen(a: Aggregate) -> None:
    for row in a["decomposition"]:
        _in_two(row, "its engine settings are not known")


def _one_matched_baseline_missing(a: Aggregate) -> None:
    for row in a["decomposition"]:
        if row["config"] == "lmcache_only":
            _in_two(row, "plain_matched_lmcache_only was not measured")


def _open_intervals(a: Aggregate) -> None:
    for value in _parts(a):
        value["high"] = None
    for cell in _measured(a):
        for key in ("ttft_ms", "tpot_ms"):
            for value in cell[key].values():
                value["high"] = None
    for tax in (*a["taxes"], *a["main_taxes"]):
        tax["high"] = None


def _no_intervals(a: Aggregate) -> None:
    for tax in (*a["taxes"], *a["main_taxes"], *_parts(a)):
        tax["low"] = tax["high"] = None


def _times(factor: float) -> Mutilation:
    def apply(a: Aggregate) -> None:
        for tax in (*a["taxes"], *a["main_taxes"], *_parts(a)):
            low, point, high = (None if tax[k] is None else factor * tax[k] for k in ("low", "point", "high"))
            tax |= {"point": point, "low": high, "high": low}

    return apply


def _enormous(a: Aggregate) -> None:
    for tax in (*a["taxes"], *a["main_taxes"]):
        if tax["config"] == "mooncake_both" and tax["point"] is not None:
            tax |= {"point": 812.4, "low": 700.0, "high": None}


def _hostile_names(a: Aggregate) -> None:
    for config in a["configs"].values():
        config["label"] = "_$\\frac{1}{<script>alert(1)</script>}\n\x00" + "very long " * 30


def _unknown_ids(a: Aggregate) -> None:
    text = json.dumps(a).replace("mooncake", "moonshine").replace("noop_connector", "null_connector")
    a.update(json.loads(text))


MUTILATIONS: dict[str, Mutilation] = {
    **{f"without {c}": _drop_config(c) for c in ("plain", "noop_connector")},
    "null percentiles": _null_percentiles,
    "no steps": _no_steps,
    "no phase b": _no_phase("b", "b_prime"),
    "no phase a": _no_phase("a"),
    "only plain": _only_plain,
    "all cells invalid": _all_invalid,
    "no reference rates": _no_reference,
    "open intervals": _open_intervals,
    "no intervals": _no_intervals,
    "negative taxes": _times(-0.5),
    "zero taxes": _times(0.0),
    "one enormous tax": _enormous,
    "hostile names": _hostile_names,
    "unknown ids": _unknown_ids,
}
# Rendering takes a tenth of a second per figure; these are the ones that bend axes and text.
RENDERED = {"hostile names", "open intervals", "one enormous tax"}


@pytest.mark.parametrize("what", MUTILATIONS)
@pytest.mark.filterwarnings("error:.*layout not applied.*", "ignore:Glyph")
def test_a_poor_aggregate_gives_a_figure_or_a_reason(what: str, example: Aggregate) -> None:
    """Never an exception, never an empty picture."""
    aggregate = copy.deepcopy(example)
    MUTILATIONS[what](aggregate)
    for name in FIGURES:
        result = drawn(name, aggregate, render=what in RENDERED)
        if isinstance(result, Omitted):
            assert len(result.reason) > 15, name
        else:
            assert_not_empty(result)


def omitted(name: str, aggregate: Aggregate) -> str:
    result = FIGURES[name](aggregate_of(aggregate))
    assert isinstance(result, Omitted)
    return result.reason


def test_without_step_records_figures_6_and_9_go(example: Aggregate) -> None:
    """The rest of the campaign stands, and the reason is the patch's own."""
    aggregate = copy.deepcopy(example)
    _no_steps(aggregate)
    aggregate["step_timing_reason"] = {
        "code": "step_timing_refused",
        "detail": "vLLM 9.9 has no such function",
    }
    kept = {name for name in FIGURES if isinstance(drawn(name, aggregate), Drawn)}
    assert kept == set(FIGURES) - {"fig6_step_cdf", "fig9_attribution"}
    assert "vLLM 9.9 has no such function" in omitted("fig6_step_cdf", aggregate)


def test_without_mooncake_figure_8_goes_with_its_reason(example: Aggregate) -> None:
    """And Figure 7 stays for the connectors that ran."""
    aggregate = copy.deepcopy(example)
    for config in ("mooncake_both", "multi_mooncake_lmcache"):
        _drop_config(config)(aggregate)
    assert "mooncake_both was skipped: no module for mooncake_both" in omitted("fig8_additivity", aggregate)
    assert isinstance(drawn("fig7_decomposition", aggregate), Drawn)


def test_without_the_noop_connector_figure_7_goes(example: Aggregate) -> None:
    """There is no framework's share without it."""
    aggregate = copy.deepcopy(example)
    _drop_config("noop_connector")(aggregate)
    assert "noop_connector was skipped" in omitted("fig7_decomposition", aggregate)


def test_figure_7_splits_what_can_be_split(example: Aggregate) -> None:
    """A connector whose settings have no baseline keeps the published experiment's two parts."""
    aggregate = copy.deepcopy(example)
    _one_matched_baseline_missing(aggregate)
    result = drawn("fig7_decomposition", aggregate, render=True)
    assert isinstance(result, Drawn)
    rows = {(r["config"], r["metric"], r["part"]): r["tax"] for r in result.data_rows}
    own = {part: tax for (c, m, part), tax in rows.items() if (c, m) == ("lmcache_only", "ttft_p90")}
    assert own == {"total": 0.09, "framework": 0.02, "implementation": pytest.approx(0.07)}
    assert ("nixl_both", "ttft_p90", "flags") in rows
    assert _texts(result).count("flags not told apart") == 2


def test_figure_7_stays_where_no_connector_has_a_matched_baseline(example: Aggregate) -> None:
    """As on a GPU, where every real connector changes a setting."""
    aggregate = copy.deepcopy(example)
    _settings_not_seen(aggregate)
    result = drawn("fig7_decomposition", aggregate, render=True)
    assert isinstance(result, Drawn)
    assert {r["part"] for r in result.data_rows} == {"framework", "implementation", "total"}
    for row in aggregate["decomposition"]:
        row |= {"parts": 0, "implementation": no_number("noop_connector: its cell died")}
    for row in aggregate["decomposition"]:
        row["implementation"]["reason"] = f"noop_connector: its {row['metric']} has no value"
    why = omitted("fig7_decomposition", aggregate)
    assert why.startswith("no tax can be split: ") and why.count("its engine settings are not known") == 1
    aggregate = copy.deepcopy(example)
    for row in aggregate["decomposition"]:
        row["total"] = no_number("requests failed")
    assert omitted("fig7_decomposition", aggregate) == "no tax can be split: requests failed"


def _in_three_rates(a: Aggregate) -> None:
    slower = {512: 2.0, 4096: 2.0, 32768: 0.25}
    for row in (*a["taxes"], *a["cells"]):
        if row["phase"] == "b":
            row["rate_per_s"] = slower[row["input_tokens"]]


def test_figure_5_names_the_rate_of_every_cell_where_rates_differ(example: Aggregate) -> None:
    """And none of them where all cells have one rate."""
    assert "req/s" not in _texts(drawn("fig5_shape_heatmaps", example, render=True))
    aggregate = copy.deepcopy(example)
    _in_three_rates(aggregate)
    result = drawn("fig5_shape_heatmaps", aggregate, render=True)
    assert isinstance(result, Drawn)
    texts = _texts(result)
    n_cells = len(result.data_rows)
    assert texts.count("\n2 req/s") + texts.count("\n0.25 req/s") == n_cells


def _texts(result: Drawn | Omitted) -> str:
    assert isinstance(result, Drawn)
    return "|".join(text.get_text() for axes in result.figure.axes for text in axes.texts)


def test_figure_8_takes_the_other_stack_where_mooncake_cannot_run(example: Aggregate) -> None:
    """Hosts without a GPU have a stack of their own to check additivity with."""
    text = json.dumps(example)
    for old, new in [
        ("multi_mooncake_lmcache", "multi_noop_example"),
        ("lmcache_only", "example_connector"),
    ]:
        text = text.replace(old, new)
    aggregate = json.loads(text)
    _drop_config("mooncake_both")(aggregate)
    result = drawn("fig8_additivity", aggregate)
    assert isinstance(result, Drawn)
    assert [r["config"] for r in result.data_rows][:2] == ["noop_connector", "example_connector"]
