"""A cell on a virtual GPU: it keeps its share of the clock, says how well that kept the time, and is invalid where it did not."""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from builders import ABOUT
from msgspec import UNSET
from virtual_gpus import clocked_campaign

from connector_tax.base.artifacts.cells import read_cell
from connector_tax.base.artifacts.layout import DEVICE_CLOCK, CampaignFolder, RunFolder
from connector_tax.base.config import load_campaign
from connector_tax.base.documents.cell import CellDocument, Health, IdleUse
from connector_tax.base.plan import cells_of
from connector_tax.base.records.cell import CellWindow
from connector_tax.base.steptime.share import NO_RECORD
from connector_tax.run.engine.process import LaunchRequest, RunningEngine, running_engine
from connector_tax.run.loadgen.coordinator import worker_pool
from connector_tax.run.measure.cell import Bench, measure_one_cell
from connector_tax.run.measure.checks import clock_at_work
from connector_tax.run.measure.failure import judge

CONFIG = Path(__file__).parents[3] / "config"
WINDOW = CellWindow(0, 1, 2, 3, min_completed_reached=True)
STEP_NS, AHEAD_S = 5_000_000, 30


def write_clock(log: Path, *, late_ns: int) -> None:
    """As a plugin's that does one step of 5 ms after the other, from now on for longer than the cell lasts."""
    begin_ns = time.monotonic_ns()
    rows = []
    for k in range(AHEAD_S * 200):
        launch = begin_ns + k * (STEP_NS + late_ns)
        rows.append([launch, launch + STEP_NS, launch + 1000, launch + STEP_NS + late_ns])
    log.parent.mkdir(parents=True, exist_ok=True)
    stand_ins = {
        "kind": "stand_ins",
        "stand_ins": ["LMCacheConnectorV1: chunks"] if late_ns < 100_000 else [],
    }
    header = '{"kind": "header", "schema": 1, "pid": 1}'
    log.write_text("\n".join((header, json.dumps(stand_ins), json.dumps(rows), "")))


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[CellDocument, list[str]]]:
    """Three cells of one launch: under a good clock, a late one, and none. The embedded engine serves: the clock is what is looked at."""
    campaign = load_campaign(CONFIG / "demo.yaml")
    gpu = clocked_campaign("m").engine.virtual_gpu
    run = CampaignFolder(tmp_path_factory.mktemp("campaign")).run("2026-01-01", "plain", "a")
    log = run.path / DEVICE_CLOCK
    clocks: dict[str, Callable[[], Any]] = {
        "good": lambda: write_clock(log, late_ns=20_000),
        "late": lambda: write_clock(log, late_ns=200_000),
        "none": lambda: log.unlink(),
    }
    found = {}
    with (
        worker_pool(1) as pool,
        running_engine(LaunchRequest(campaign.engine, campaign.connector("plain"), run.path)) as engine,
    ):
        engine.wait_ready()
        on_clock = replace(
            engine,
            request=replace(engine.request, engine=msgspec.structs.replace(campaign.engine, virtual_gpu=gpu)),
        )
        for name, clock in clocks.items():
            clock()
            found[name] = measure(campaign, run, on_clock, pool, rate=20.0 + len(found))
    return found


def measure(
    campaign: Any, run: RunFolder, engine: RunningEngine, pool: Any, rate: float
) -> tuple[CellDocument, list[str]]:
    spec = replace(
        cells_of(campaign, "plain", "a")[0],
        rate_per_s=rate, input_tokens=64, output_tokens=4, warmup_s=0.2, duration_s=1.0, min_completed=5, max_cell_s=5.0,
    )  # fmt: skip
    folder = run.cell(spec.cell_id)
    death = measure_one_cell(
        spec, folder, Bench(engine=engine, pool=pool, raw_metrics=run.raw_metrics, step_log=None, about=ABOUT, idle=IdleUse()),
        last_try=True,
    )  # fmt: skip
    assert death is None
    kept = folder.device_clock
    return read_cell(folder), kept.read_text().splitlines() if kept.exists() else []


def test_a_cell_says_how_well_the_clock_kept_the_time(measured: dict[str, Any]) -> None:
    document, rows = measured["good"]
    clock = document.health.device_clock
    assert clock.lateness_us == {"p50": 20.0, "p99": 20.0, "max": 20.0}
    assert clock.late_share == pytest.approx(20 / 5000)
    assert clock.device_busy_share == pytest.approx(5000 / 5020, rel=0.01)
    assert clock.slack_us == {"p10": 4999.0, "p50": 4999.0}
    assert not [r for r in document.reasons if "clock" in r]
    window = document.window
    stamps = [json.loads(row)[0] for row in rows]
    assert window.t0_ns <= stamps[0] and stamps[-1] < window.drained_ns
    assert clock.steps == sum(window.window_start_ns <= t < window.t_stop_ns for t in stamps)
    assert f"device_clock_A_{document.cell_id}.jsonl" in document.files
    assert document.health.stand_ins == ("LMCacheConnectorV1: chunks",)


def test_a_late_clock_makes_the_cell_invalid(measured: dict[str, Any]) -> None:
    document, _ = measured["late"]
    assert document.health.stand_ins is UNSET
    assert document.verdict == "invalid"
    assert any(r.startswith("the virtual GPU's clock ran late: results came 4.0%") for r in document.reasons)


def test_a_clock_that_left_nothing_makes_the_cell_invalid(measured: dict[str, Any]) -> None:
    document, rows = measured["none"]
    assert (document.verdict, rows) == ("invalid", [])
    assert NO_RECORD in document.reasons
    assert document.health.device_clock is UNSET


def test_preflight_finds_out_whether_vllm_took_the_clock(tmp_path: Path) -> None:
    """A release that passes the plugin over would serve on the CPU, and every cell would turn out invalid hours later."""
    engine: Any = SimpleNamespace(request=SimpleNamespace(folder=tmp_path))
    found = clock_at_work(engine)
    assert not found.ok and "did not load the plugin" in found.detail
    write_clock(tmp_path / DEVICE_CLOCK, late_ns=0)
    assert clock_at_work(engine).ok


def test_an_engine_with_a_device_of_its_own_has_no_clock_to_judge() -> None:
    assert judge(WINDOW, Health(), prefix_cache_hits_delta=0.0, engine_death=None).valid
    late = judge(WINDOW, Health(), prefix_cache_hits_delta=0.0, engine_death=None, clock_fault="late")
    assert (late.word, late.reasons) == ("invalid", ("late",))
