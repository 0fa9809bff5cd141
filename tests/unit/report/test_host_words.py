"""The report on the host: sentences over all cells, a table beside plain's drift, and that nobody looked."""

import copy
import html
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from connector_tax.base.documents.aggregate import aggregate_of
from connector_tax.read.report.host import NO_READINGS, host_drift_view, host_view

sys.path.insert(0, str(Path(__file__).parents[2]))
from made_pages import text_of

EXAMPLE = json.loads((Path(__file__).parents[2] / "data" / "aggregate_example.json").read_text())


def said(aggregate: dict[str, Any]) -> str:
    text = re.sub(r"<style>.*?</style>", "", text_of(aggregate), flags=re.DOTALL)  # fmt: skip
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", text)).split())


@pytest.fixture
def aggregate() -> dict[str, Any]:
    return copy.deepcopy(EXAMPLE)


def cells(*hosts: dict[str, Any] | None) -> dict[str, Any]:
    """A usable cell for each."""
    cell = next(c for c in EXAMPLE["cells"] if c["usable"])
    return {**EXAMPLE, "cells": [{**cell, "host": host} for host in hosts]}


def beside(aggregate: dict[str, Any], gpu: list[str], mixed: list[str], **more: int) -> str:
    cards = {name: ["a", "b"] for name in gpu or ["engine.gpu 0", "engine.gpu 1"]}
    about = {**aggregate["provenance"], "gpu": gpu[:1], "cards": cards, "mixed_cards": mixed, **more}
    return host_view(aggregate_of({**aggregate, "provenance": about}))[-1]


def test_engines_side_by_side_are_said_and_whether_comparisons_cross_cards(aggregate: dict[str, Any]) -> None:
    two = ["GPU 0: NVIDIA H20 (UUID: GPU-1)", "GPU 1: NVIDIA H20 (UUID: GPU-2)"]
    engines = (
        "Up to 2 engines ran side by side on this host and shared its memory and buses. "
        "tests/perf/neighbours.py measures by how much such neighbours slow plain down."
    )
    assert beside(aggregate, [], ["a"]) == engines
    assert (
        beside(aggregate, two, []) == f"{engines} Cells that are compared with one another ran on one card."
    )
    assert beside(aggregate, two, ["a", "b_prime"]).startswith(
        f"{engines} In phase A and phase B', cells that are compared with one another ran on different cards: a tax there holds"
    )
    assert "side by side" not in " ".join(host_view(aggregate_of(aggregate)))
    assert beside(aggregate, two, [], side_by_side=1) == (
        "Engines ran one at a time, on 2 cards of this host that the campaign could use side by side. "
        "Cells that are compared with one another ran on one card."
    )


def host(steal: float | None, mhz: float | None, **gpu: Any) -> dict[str, Any]:
    nothing = dict.fromkeys(("sm_mhz_p50", "mem_mhz_p50", "temperature_c_max", "power_w_mean"))
    known = {**nothing, "utilisation_mean": None, "clock_reasons": None, "n_failed": 0, "errors": [], **gpu}
    mhz_of = {"cpu_mhz_p50": mhz, "cpu_mhz_min": mhz}
    return {"n": 60, "steal_share": steal, **mhz_of, "gpu": known if gpu else None}


def test_cells_that_say_nothing_are_said_to() -> None:
    """Rehearsed, or of an older version."""
    assert host_view(aggregate_of(cells(None, None))) == [NO_READINGS]
    assert host_view(aggregate_of(cells())) == []


def test_a_host_without_clocks_and_gpu() -> None:
    assert host_view(aggregate_of(cells(host(0.0004, None), host(0.0123, None), None))) == [
        "2 of 3 cells say what the host did.",
        "CPUs: 0.04 to 1.23 % of CPU time stolen per cell; this kernel does not tell their clocks.",
        "GPU: none that could be asked.",
    ]


def test_a_host_that_tells_all() -> None:
    one = host(0.0, 2600.0, sm_mhz_p50=1980.0, temperature_c_max=61.0, power_w_mean=412.5, clock_reasons={})
    two = host(0.0, 3100.4, sm_mhz_p50=1755.0, temperature_c_max=71.0, power_w_mean=412.5, clock_reasons={"sw_power_cap": 0.1}, errors=["power_w: GPU is lost"])  # fmt: skip
    assert host_view(aggregate_of(cells(one, two))) == [
        "CPUs: 0.00 % of CPU time stolen per cell; clocks of 2,600 to 3,100 MHz.",
        "GPU, per cell: SM clock 1,755 to 1,980 MHz; peak temperature 61.0 to 71.0 °C; mean power 412.5 W; "
        "clocks held down by sw_power_cap in 1 of 2 cells; readings failed in 1 cells (power_w: GPU is lost).",
    ]


def test_a_host_whose_cores_were_slower_in_some_cells() -> None:
    fast, slow = ({**host(0.0, None), "cpu_work_us_mean": us} for us in (203.4, 284.0))
    assert host_view(aggregate_of(cells(fast, slow)))[0] == (
        "CPUs: 0.00 % of CPU time stolen per cell; this kernel does not tell their clocks. A fixed piece of work took 203 to 284 µs "
        "of CPU time (mean per cell): the part of a latency that the host takes grows about in proportion."
    )


def test_the_page_says_it_and_explains_the_flags(aggregate: dict[str, Any]) -> None:
    for cell in aggregate["cells"]:
        cell["flags"] = []
    aggregate["cells"][0]["flags"] = ["cpu_stolen", "gpu_throttled"]
    text = said(aggregate)
    assert "What the host did meanwhile CPUs: 0.04 % of CPU time stolen per cell" in text
    n = len(aggregate["cells"])
    assert f"cpu_stolen 1 of {n} the hypervisor gave over 1 % of the host's CPU time to somebody else" in text
    assert f"gpu_throttled 1 of {n} power, heat or another limit held the GPU's clocks down" in text


def source(name: str, unit: str, mean: float, change: tuple[float, float, float], p: float) -> dict[str, Any]:
    low, point, high = change
    bounds = {"point": point, "low": low, "high": high}
    return {"source": name, "unit": unit, "n": 8, "mean": mean, "change": bounds, "p_value": p}


def drift(*sources: dict[str, Any]) -> dict[str, Any]:
    change = {"point": 0.02, "low": 0.01, "high": 0.03}
    entry = {
        "reference": "ref_safe",
        "rate_per_s": 2.0,
        "blocks": 4,
        "noise_floor": {"point": 0.01, "low": -0.01, "high": 0.03, "half_width": 0.02},
        "between_launch_sd": 0.012,
        "drift": {"change": change, "p_value": 0.01, "hours": 2.5},
        "taxes": [],
    }
    return {
        "repeats": [{**entry, "metric": "ttft_p90"}, {**entry, "metric": "tpot_p90", "rate_per_s": 4.0}],
        "host_drift": [
            {"reference": "ref_safe", "rate_per_s": 2.0, "n_launches": 8, "sources": list(sources)}
        ],
    }


def test_the_host_stands_beside_the_drift_of_plain_at_the_same_rate(aggregate: dict[str, Any]) -> None:
    aggregate |= drift(
        source("steal_share", "ratio", 0.0025, (-0.0001, 0.0003, 0.0007), 0.2),
        source("gpu_sm_mhz_p50", "MHz", 1950.0, (-40.0, -30.0, -20.0), 0.0004),
        source("gpu_temperature_c_max", "C", 61.0, (-1.0, 0.0, 1.0), 1.0),
    )
    (table,) = host_drift_view(aggregate_of(aggregate))
    assert [(r.name, r.mean, r.change, r.p, r.word) for r in table.rows] == [
        ("plain's TTFT p90", "", "+2.0 % [+1.0 %, +3.0 %]", "0.01", "changes"),
        ("CPU time stolen", "0.25 %", "+0.03 pp [−0.01, +0.07]", "0.2", "no visible change"),
        ("GPU clock (SM)", "1,950 MHz", "−30 MHz [−40, −20]", "0.0004", "changes"),
        ("GPU temperature", "61.0 °C", "0.0 °C [−1.0, +1.0]", "1", "no visible change"),
    ]
    text = said(aggregate)
    assert "The host over 8 launches of plain at ref_safe, 2 req/s" in text
    assert "GPU clock (SM) 1,950 MHz −30 MHz [−40, −20] 0.0004 changes" in text
    assert "Not told by this host: CPU clock, CPU time of a fixed piece of work and GPU power." in text


def test_a_host_that_tells_nothing_leaves_the_drift_of_plain(aggregate: dict[str, Any]) -> None:
    text = said(aggregate | drift())
    assert "plain's TTFT p90 +2.0 % [+1.0 %, +3.0 %] 0.01 changes" in text
    assert "Not told by this host: CPU time stolen, CPU clock, CPU time of a fixed piece of work, GPU clock (SM), GPU temperature and GPU power." in text  # fmt: skip


def test_without_blocks_there_is_no_table(aggregate: dict[str, Any]) -> None:
    assert "The host over" not in said(aggregate)
    del aggregate["host_drift"]
    assert host_drift_view(aggregate_of(aggregate)) == []
