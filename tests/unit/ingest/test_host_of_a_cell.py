"""Samples of a window to what the host did in it, worked by hand."""

import json
from pathlib import Path
from typing import Any

import pytest

from connector_tax.base.documents.aggregate import Host
from connector_tax.base.records.cell import CellWindow
from connector_tax.read.ingest.samples import Samples, read_samples

S = 1_000_000_000
WINDOW = CellWindow(0, 10 * S, 14 * S, 20 * S, True)
VALUES = {"num_requests_waiting": 2.0, "num_requests_running": 5.0}


def samples(tmp_path: Path, hosts: dict[float, Any]) -> Samples:
    """One line per time in seconds; ``...``: the line holds no host, as those of older versions."""
    lines = []
    for t_s, host in hosts.items():
        row: dict[str, Any] = {"t_ns": round(t_s * S), "ok": True, "values": VALUES}
        lines.append(json.dumps(row if host is ... else {**row, "host": host}))
    path = tmp_path / "metrics.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return read_samples(path, WINDOW)


def state(tmp_path: Path, hosts: dict[float, Any]) -> Host:
    found = samples(tmp_path, hosts).host
    assert found is not None
    return found


def ticks(total: int, stolen: int) -> dict[str, int]:
    return {"cpu_ticks": total, "steal_ticks": stolen}


def test_steal_is_what_was_added_inside_the_window(tmp_path: Path) -> None:
    """From 10.5 s to 13.5 s: (40 - 25) of (1600 - 1000) ticks. What was stolen before and after does not count."""
    told = {9.5: (800, 0), 10.5: (1000, 25), 11.5: (1200, 30), 13.5: (1600, 40), 14.5: (1800, 240)}
    found = state(tmp_path, {t: ticks(*v) for t, v in told.items()})
    assert found.steal_share == 15 / 600
    assert found.n == 3


@pytest.mark.parametrize(
    "told",
    [
        {11.0: ticks(1000, 5), 12.0: ticks(1000, 5)},
        {11.0: ticks(1000, 5), 12.0: ticks(1200, 4)},
        {11.0: {"cpu_ticks": 1000}, 12.0: {"cpu_ticks": 1200}},
    ],
    ids=["no time", "backwards", "not counted"],
)
def test_steal_that_cannot_be_known_is_not_zero(tmp_path: Path, told: dict[float, Any]) -> None:
    assert state(tmp_path, told).steal_share is None


def test_clocks_are_medians_over_cores_then_over_samples(tmp_path: Path) -> None:
    """Medians of the samples: 2000, 3000, 2500. One idle core at 800 is not the host's lowest."""
    told: dict[float, Any] = {10.0: {"cpu_mhz": [800, 2000, 3000]}, 11.0: {"cpu_mhz": [3000, 3000, 3100]}}
    found = state(tmp_path, {**told, 12.0: {"cpu_mhz": [2000, 3000]}, 13.0: {}})
    assert (found.cpu_mhz_p50, found.cpu_mhz_min, found.n) == (2500, 2000, 4)


def test_the_work_is_a_mean_of_all_times_that_it_was_done(tmp_path: Path) -> None:
    found = state(
        tmp_path, {10.0: {}, 11.0: {"cpu_work_us": [200.0, 210.0, 280.0]}, 12.0: {"cpu_work_us": [290.0]}}
    )
    assert found.cpu_work_us_mean == 245
    assert state(tmp_path, {10.0: {"cpu_ticks": 5}}).cpu_work_us_mean is None
    assert found.gpu is None


def test_a_gpus_window_with_a_failure_in_the_middle(tmp_path: Path) -> None:
    told: dict[float, Any] = {
        10.0: {"sm_mhz": 1980, "mem_mhz": 2619, "temperature_c": 60, "power_w": 400.0, "utilisation": 1.0, "clock_reasons": []},
        11.0: {"sm_mhz": 1755, "mem_mhz": 2619, "temperature_c": 71, "power_w": 500.0, "utilisation": 0.5, "clock_reasons": ["sw_power_cap", "hw_slowdown"]},
        12.0: {"errors": ["sm_mhz: GPU is lost", "power_w: GPU is lost"]},
        13.0: {"sm_mhz": 1900, "temperature_c": 65, "clock_reasons": ["sw_power_cap"], "errors": ["power_w: GPU is lost"]},
    }  # fmt: skip
    gpu = state(tmp_path, {t: {"gpu": g} for t, g in told.items()}).gpu
    assert gpu is not None
    assert (gpu.sm_mhz_p50, gpu.mem_mhz_p50, gpu.temperature_c_max) == (1900, 2619, 71)
    assert (gpu.power_w_mean, gpu.utilisation_mean) == (450, 0.75)
    assert gpu.clock_reasons == {"sw_power_cap": 2 / 3, "hw_slowdown": 1 / 3}
    only = state(tmp_path, {11.0: {"gpu": {"errors": ["GPU 9: Invalid Argument"]}}}).gpu
    assert only is not None and (only.sm_mhz_p50, only.clock_reasons, only.n_failed) == (None, None, 1)
    assert (gpu.n_failed, gpu.errors) == (2, ("sm_mhz: GPU is lost", "power_w: GPU is lost"))


def test_lines_of_older_versions_say_nothing_of_the_host(tmp_path: Path) -> None:
    found = samples(tmp_path, {11.0: ..., 12.0: ...})
    assert found.host is None
    assert (found.n, found.n_missed, found.waiting_p50, found.n_waiting) == (2, 0, 2.0, 2)


@pytest.mark.parametrize("host", [3, {"cpu_ticks": "many"}, {"gpu": {"sm_mhz": {}}}])
def test_a_reading_of_another_form_is_no_reading_and_no_missed_sample(tmp_path: Path, host: Any) -> None:
    found = samples(tmp_path, {11.0: host, 12.0: {"cpu_mhz": [2000], "added_later": 1}})
    assert found.host is not None and found.host.n == 1 and found.host.cpu_mhz_p50 == 2000
    assert (found.n, found.n_missed, found.running_p50) == (2, 0, 5.0)


def test_the_host_is_read_where_the_engine_did_not_answer(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    rows = [
        {"t_ns": t * S, "ok": False, "error": "ConnectError", "host": ticks(t * 100, t)} for t in (11, 13)
    ]
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    found = read_samples(path, WINDOW)
    assert found.n_missed == 2 and found.host is not None and found.host.steal_share == 2 / 200
