"""Drill-downs on the page: what it holds is what the raw files hold, and what cannot be shown is said."""

import base64
import hashlib
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from builders import DATE, Campaign
from drilled_campaign import HOSTILE, Opened, measured, opened
from page_reader import Reader
from read_through import read

from connector_tax.base.artifacts.compact import RULE, make_compact
from connector_tax.base.files import read_json, write_json
from connector_tax.base.records.cell import CellWindow
from connector_tax.base.statistics.overload import MAX_WAITING, MIN_THROUGHPUT_RATIO
from connector_tax.read.figures.words import WORDS, labels
from connector_tax.read.ingest import CellData, read_campaign
from connector_tax.read.report import drill
from connector_tax.read.report.drill import MOST_ROWS, drill_down, read_drill_downs, table
from connector_tax.read.report.page import build_report, render
from connector_tax.read.report.view import page_view
from connector_tax.read.stats.aggregate import aggregate
from connector_tax.read.stats.reference import MAX_TTFT_GROWTH

CELL = "plain vLLM, rates, 4/s, 256 × 16"
FOLDER = f"{DATE}_plain/phase_a/cells/r4_256x16"
THINNED = "Step records were left out when the campaign was thinned"
SAMPLED = (
    "running",
    "waiting",
    "stolen",
    "work_us",
    "cpu_mhz",
    "sm_mhz",
    "mem_mhz",
    "temperature_c",
    "power_w",
)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    campaign = measured(tmp_path_factory.mktemp("drilled") / "c")
    read(campaign.root)
    return campaign.root


@pytest.fixture(scope="module")
def page(root: Path) -> str:
    return written(root)


@pytest.fixture
def copied(root: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(root, tmp_path / "c"))


def written(root: Path) -> str:
    return (root / "report.html").read_text()


def page_of(root: Path) -> str:
    return build_report(root).read_text()


def cell_of(page: str) -> Opened:
    return opened(page)[CELL]


def raw_cell(root: Path) -> CellData:
    cells = read_campaign(root).cells()
    return next(c for c in cells if c.cell_id == "r4_256x16" and c.config == "plain")


def test_every_cell_that_was_measured_can_be_opened_from_its_row(page: str, root: Path) -> None:
    found = opened(page)
    assert len(found) == 6
    for one in found.values():
        assert page.count(f'<a href="#{one.anchor}"') == 1 and page.count(f'id="{one.anchor}"') == 1
    assert f"Raw files: {FOLDER} ." in found[CELL].text and (root / FOLDER).is_dir()


def test_requests_are_as_their_records_say(page: str, root: Path) -> None:
    """Each is there at its intended send time; one that failed has no latency and its status."""
    found = cell_of(page).data
    cell = raw_cell(root)
    assert any(r.status != "ok" for r in cell.requests) and found["requests"]["of"] == len(cell.requests)
    sent = [(r.t_sched_ns - cell.window.t0_ns) / 1e9 for r in cell.requests]
    assert found["requests"]["t"] == pytest.approx(sent, abs=0.0006)
    for name in ("ttft", "e2e", "tpot"):
        ms = [None if (ns := getattr(r, f"{name}_ns")) is None else ns / 1e6 for r in cell.requests]
        assert [v is None for v in found["requests"][name]] == [v is None for v in ms]
        known = [(v, w) for v, w in zip(found["requests"][name], ms, strict=True) if w is not None]
        assert [v for v, _ in known] == pytest.approx([w for _, w in known], rel=0.0006)
    assert found["statuses"] == ["http error"]
    assert found["requests"]["failed"] == [None if r.status == "ok" else 0 for r in cell.requests]
    ends = (cell.window.window_start_ns, cell.window.t_stop_ns, cell.window.drained_ns)
    assert found["times"] == [(t - cell.window.t0_ns) / 1e9 for t in ends]


def test_steps_keep_their_extremes_and_the_page_says_of_how_many_they_are(
    page: str, copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = raw_cell(copied).steps
    assert steps is not None
    ms = steps.load().step_duration_us / 1e3
    every = cell_of(page)
    assert every.data["steps"]["step"] == pytest.approx(list(ms), rel=0.0006) and "Drawn" not in every.text
    monkeypatch.setattr(drill, "MOST_ROWS", 6 * 40)
    thinned = cell_of(page_of(copied))
    shown = thinned.data["steps"]
    assert len(shown["step"]) <= 40 < ms.size == shown["of"]
    assert f"Drawn: {len(shown['t'])} of {ms.size} steps." in thinned.text
    for values in (shown["step"], every.data["steps"]["step"]):
        assert [min(values), max(values)] == pytest.approx([ms.min(), ms.max()], rel=0.0006)
    assert min(ms) * 0.999 <= min(shown["median"]) <= max(shown["median"]) <= max(ms) * 1.001


def test_the_host_is_as_samples_say(page: str) -> None:
    found = cell_of(page)
    samples = found.data["samples"]
    assert set(samples) == {"t", "of", *SAMPLED}
    # A column that never changes is one number.
    assert (samples["running"], samples["waiting"], samples["cpu_mhz"]) == (1, 0, 3050)
    # One to three of 400 ticks; the first sample has none before it.
    assert samples["stolen"][0] is None and set(samples["stolen"][1:]) == {0.25, 0.5, 0.75}
    assert set(samples["work_us"]) == {205, 205.5, 206, 206.5}
    assert set(samples["temperature_c"]) == {50, 51, 52, 53, 54}
    assert re.search(r"GPU clocks held down: </script>.* in 5\d % of samples\.", found.text)
    assert "Not recorded" not in found.text
    columns = {name for key in ("requests", "steps", "samples") for name in found.data[key]}
    assert columns - {"t", "of"} == set(labels()["series"]), "every column has a name"
    thresholds = {
        "throughput": f"{100 * MIN_THROUGHPUT_RATIO:g} %",
        "waiting": f"above {MAX_WAITING:g}",
        "ttft_growth": f"{MAX_TTFT_GROWTH:g} times",
    }
    assert labels()["saturated"].keys() == labels()["saturation"].keys()
    assert all(words in labels()["saturated"][code] for code, words in thresholds.items())


def test_what_no_sample_says_is_named(copied: Path) -> None:
    (path,) = (copied / FOLDER).glob("metrics_*")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        del line["host"]["gpu"]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    found = drilled(copied)
    assert {"sm_mhz", "power_w"}.isdisjoint(found.data["samples"]) and "stolen" in found.data["samples"]
    assert "Not recorded: GPU clock; GPU power." in found.text


def drilled(root: Path) -> Opened:
    """The cell on a page of results that were edited: their checksums are not held against them."""
    read(root, draw=False)
    found = opened(written(root))
    return found.get(f"{CELL}, left out") or found[CELL]


def test_hooks_failures_flags_and_launch_are_told(page: str) -> None:
    found = opened(page)
    plain, own = found[CELL], found[CELL.replace("plain vLLM", "no-op connector")]
    assert "No hook was recorded" in plain.text and plain.launched == ""
    # 50 µs of a step of 9.45 ms.
    assert f"worker/{HOSTILE.replace(chr(0x202E), ' ')} 0.53 50.0 1.00" in own.text
    assert "Flag: client and engine share cores" in own.text
    assert own.launched.startswith('{"kv_connector": "NoOpConnector"')
    assert page.count("Launched with") == 1, "once for all cells of a configuration"
    assert re.search(r"\d+ requests: http error; the first: HTTP 500: </script>", own.text)


def test_the_page_is_the_same_each_time_and_runs_one_script(page: str, root: Path) -> None:
    """Data are in script elements, too, which a browser does not run; what servers say ends none of them."""
    assert page_of(root) == page
    tags = Reader(page).tags
    scripts = [attributes for tag, attributes in tags if tag == "script"]
    assert scripts.count({"type": "application/json"}) == 6 and scripts.count({}) == 1 and len(scripts) == 7
    assert [a for tag, a in tags if tag == "img" and "onerror" in a] == []


def test_the_page_carries_the_library_with_its_licence_and_only_where_a_cell_opens(
    page: str,
) -> None:
    assert (WORDS / "vendor" / "uPlot.iife.min.js").read_text() in page
    script = page.partition("<script>")[2].partition("</script>")[0]
    assert f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" in page
    assert (WORDS / "vendor" / "LICENSE").read_text() in page


def test_without_raw_results_the_page_says_what_opening_needs(copied: Path) -> None:
    shutil.rmtree(copied / FOLDER)
    page = page_of(copied)
    assert len(opened(page)) == 5 and CELL not in opened(page), "one that is lost leaves the others"
    assert "cells cannot be opened: their raw results are not here." in Reader(page).text
    for folder in copied.glob("????-??-??_*"):
        shutil.rmtree(folder)
    page = page_of(copied)
    assert (
        opened(page) == {}
        and "uPlot" not in page
        and "the raw results do not lie beside aggregate.json" in page
    )
    value = read_json(copied / "aggregate.json")
    write_json(copied / "aggregate.json", value | {"cells": []})
    assert "No cell can be opened: the campaign has none." in page_of(copied)
    (copied / "campaign.json").unlink()
    assert "the raw results cannot be read: campaign.json" in page_of(copied)


def test_a_thinned_campaign_says_what_was_kept_and_which_cells_lost_their_steps(
    page: str, tmp_path: Path
) -> None:
    thinned = tmp_path / "c"
    published = Campaign(tmp_path / "whole", max_steps=60)
    published.measure_everything()
    make_compact(published.root, thinned)
    made = page_view(aggregate(read_campaign(thinned)), None)
    keys = [row.key for _, rows in made.cells for row in rows]
    text = render(made, [], read_drill_downs(thinned, keys))
    assert f"What was kept: {RULE}." in text
    found = opened(text)
    kept = [key for key, one in found.items() if THINNED not in one.text]
    assert 0 < len(kept) < len(found) == len(keys)
    for key, one in found.items():
        assert bool(one.data["steps"]) == (key in kept), "where steps are shown, none were left out"
        assert "No step records" not in one.text
    assert "thinned" not in page


@pytest.mark.parametrize(
    ("stream", "how"),
    [("requests", "torn"), ("requests", "empty"), ("metrics", "garbage"), ("engine_step", "torn"), ("engine_step", "gone")],
)  # fmt: skip
def test_a_damaged_cell_is_shown_as_far_as_it_can_be_read_and_says_so(
    copied: Path, stream: str, how: str
) -> None:
    (path,) = (copied / FOLDER).glob(f"{stream}_*")
    content = path.read_bytes()
    {
        "torn": lambda: path.write_bytes(content[: len(content) // 2]),
        "garbage": lambda: path.write_bytes(bytes(range(256)) * 50),
        "gone": path.unlink,
        "empty": lambda: path.write_bytes(b""),
    }[how]()
    cell = drilled(copied)
    assert "Left out: " in cell.text and path.name in cell.text
    assert len(opened(written(copied))) == 6
    no_records = (stream, how) == ("engine_step", "gone")
    assert ("No step records" in cell.text, "step records were not read" in cell.text) == (
        no_records,
        not no_records,
    )
    if stream != "metrics":
        assert "work_us" in cell.data["samples"]


def test_raw_results_that_are_others_than_those_analysed_are_named(copied: Path) -> None:
    value = read_json(copied / "aggregate.json")
    cell = next(c for c in value["cells"] if c["cell_id"] == "r4_256x16" and c["config"] == "plain")
    cell["n_ok"] -= 1
    write_json(copied / "aggregate.json", value)
    assert "it was not made of these files" in cell_of(page_of(copied)).text
    cell["n_ok"] += 1
    write_json(copied / "aggregate.json", value)
    assert "it was not made of these files" not in cell_of(page_of(copied)).text


def test_a_campaign_of_any_size_fits_on_a_page() -> None:
    """320 cells of 30,000 steps, with everything recorded and nothing that stays the same: 3.6 MB beside figures and tables."""
    rng, n = np.random.default_rng(1), 30_000
    at = np.sort(rng.uniform(0, 300, n))
    tables = {
        "requests": ("ttft", "e2e", "tpot", "failed"),
        "steps": ("step", "median"),
        "samples": SAMPLED,
    }
    size = 0
    for names in tables.values():
        found = table(at, {name: rng.lognormal(5, 2, n) for name in names}, 300, MOST_ROWS // 320)
        size += len(json.dumps(found, separators=(",", ":")))
    assert 320 * size < 3_600_000


def test_a_cell_without_length_is_shown(root: Path) -> None:
    """Whoever writes results may write any times."""
    cell = replace(raw_cell(root), window=CellWindow(5, 5, 5, 5, True), steps=None)
    folder = next(r.folder for r in read_campaign(root).runs).cell("r4_256x16")
    found = drill_down(("cell-1", cell, folder), root, 100)
    assert found.data["times"] == [0, 0, 0] and found.counts == (0, 0)
