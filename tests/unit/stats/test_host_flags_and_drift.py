"""What of the host qualifies a cell, and whether it changed over launches: by hand, by normal equations, by scipy."""

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from analysed import aggregate_json
from builders import SMALL, Campaign, campaign_config
from invented_server import Behaviour
from msgspec.structs import replace
from scipy import stats

from connector_tax.base.documents.aggregate import Gpu, Host, aggregate_of
from connector_tax.base.statistics.drift import line_through_blocks, straight_line
from connector_tax.read.ingest import read_campaign
from connector_tax.read.stats.cell_rows import aggregate_csv
from connector_tax.read.stats.host import host_changes, host_flags

GPU = Gpu(
    sm_mhz_p50=1980.0,
    mem_mhz_p50=2619.0,
    temperature_c_max=60.0,
    power_w_mean=400.0,
    utilisation_mean=0.9,
    clock_reasons={},
    n_failed=0,
    errors=(),
)


def host_with(steal_share: float | None, gpu: Gpu | None = None) -> Host:
    return Host(n=60, steal_share=steal_share, cpu_mhz_p50=None, cpu_mhz_min=None, gpu=gpu)


S = 1_000_000_000


def test_a_clock_that_never_moves_does_not_change() -> None:
    """Where scipy has no p, since 0 is divided by 0."""
    found = straight_line([0.0, 1.0, 2.0, 5.0], [1980.0] * 4, 0.95)
    assert (found.change, found.low, found.high, found.p_value) == (0, 0, 0, 1)


@pytest.mark.parametrize(("hours", "values"), [([], []), ([0.0, 1.0], [1.0, 2.0]), ([1.0] * 4, [1.0, 2.0, 3.0, 4.0])])  # fmt: skip
def test_two_launches_or_one_moment_are_no_line(hours: list[float], values: list[float]) -> None:
    assert straight_line(hours, values, 0.95) is None


def test_blocks_that_lie_beside_one_another_are_no_line() -> None:
    """Each has a launch at either end of ten hours."""
    points = [
        (b, h + k / 60, 0.0 if h else 0.1) for k, b in enumerate(("r1", "r2", "r3")) for h in (0.0, 10.0)
    ]
    assert line_through_blocks(points, 0.95) is None
    apart = [(b, k + h, float(k)) for k, b in enumerate(("r1", "r2", "r3")) for h in (0.0, 0.5)]
    found = line_through_blocks(apart, 0.95)
    assert found is not None and (found.change, found.span_h) == pytest.approx((2.5, 2.5))


def test_sources_that_too_few_launches_know_are_absent() -> None:
    steal = [0.001, 0.002, 0.004, 0.003]
    launches: list[tuple[str, float, Host | None]] = [
        (f"r{k}", float(k), host_with(share, GPU if k < 2 else None)) for k, share in enumerate(steal)
    ]
    (found,) = host_changes([*launches, ("r4", 4.0, None)], 0.95)
    by_scipy = stats.linregress([0, 1, 2, 3], steal)
    assert (found.source, found.unit, found.n) == ("steal_share", "ratio", 4)
    assert found.mean == pytest.approx(0.0025)
    assert found.change.point == pytest.approx(3 * by_scipy.slope)
    assert found.p_value == pytest.approx(by_scipy.pvalue)


def measured(root: Path, host: Callable[[int, int], dict[str, Any]] | None, **sections: Any) -> Campaign:
    plain = Behaviour(noise=0.05)
    config = campaign_config(**{**SMALL, "analysis": {"bootstrap_draws": 200}, **sections})
    names = (*config.connector_ids, "plain_again")
    campaign = Campaign(root, config, dict.fromkeys(names, plain), max_steps=60, host=host)
    campaign.measure_everything()
    return campaign


def test_a_campaign_on_a_host_that_warms_up(tmp_path: Path) -> None:
    """The SM clock falls 60 MHz an hour; one tick of fifty is stolen; the driver caps the power in one second of each cell."""

    def host(t_ns: int, start_ns: int) -> dict[str, Any]:
        reasons = ["sw_power_cap"] if t_ns - start_ns < S else ["gpu_idle"]
        gpu = {"sm_mhz": 1980 - t_ns / S / 60, "temperature_c": 50, "clock_reasons": reasons}
        beat = t_ns // S
        return {"cpu_ticks": beat * 200, "steal_ticks": beat * 4, "gpu": gpu}

    found = aggregate_json(read_campaign(measured(tmp_path, host, repeats=1).root))
    for cell in found["cells"]:
        assert (cell["verdict"], cell["usable"]) == ("valid", True)
        assert cell["flags"] == ["cpu_stolen", "gpu_throttled"]
        assert cell["host"]["steal_share"] == pytest.approx(0.02)
        assert cell["host"]["cpu_mhz_p50"] is None
    (safe,) = found["host_drift"]  # nothing saturates, so both reference rates are the same
    assert (safe["reference"], safe["n_launches"]) == ("ref_safe", 6)
    sources = {s["source"]: s for s in safe["sources"]}
    assert set(sources) == {"steal_share", "gpu_sm_mhz_p50", "gpu_temperature_c_max"}
    (drift,) = [
        e["drift"] for e in found["repeats"] if (e["reference"], e["metric"]) == ("ref_safe", "ttft_p90")
    ]
    clock = sources["gpu_sm_mhz_p50"]
    assert clock["n"] == 3, "three blocks of two launches"
    # Cells differ in length, and the median is of the middle of each; a launch begins at its start.
    assert clock["change"]["point"] == pytest.approx(-60 * drift["hours"], rel=0.05)
    assert clock["p_value"] < 0.05
    assert sources["gpu_temperature_c_max"]["change"] == {"point": 0, "low": 0, "high": 0}
    assert sources["gpu_temperature_c_max"]["p_value"] == 1
    row = next(csv.DictReader(io.StringIO(aggregate_csv(aggregate_of(found)))))
    assert float(row["host_steal_share"]) == pytest.approx(0.02)
    assert (row["gpu_temperature_c_max"], row["gpu_power_w_mean"]) == ("50.0", "")


@pytest.mark.parametrize(
    ("steal_share", "reasons", "flags"),
    [
        (None, None, []),
        (0.01, {"gpu_idle": 0.9, "applications_clocks_setting": 1.0}, []),
        (0.0101, {}, ["cpu_stolen"]),
        (0.0, {"gpu_idle": 0.9, "sw_power_cap": 0.02}, ["gpu_throttled"]),
        (0.0, {"0x1000": 0.5}, ["gpu_throttled"]),
    ],
)
def test_over_one_percent_of_steal_and_a_clock_that_nobody_chose_are_said(
    steal_share: float | None, reasons: dict[str, float] | None, flags: list[str]
) -> None:
    assert host_flags(host_with(steal_share, replace(GPU, clock_reasons=reasons))) == flags
    assert host_flags(None) == host_flags(host_with(None)) == []
