"""What the record of releases says of what was measured: changes, the hooks they lie in, and what is missing."""

import csv
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from connector_tax.base.documents.identity import GpuDocument
from connector_tax.base.errors import ConfigError
from connector_tax.base.records.host import HostCosts, StepCosts
from connector_tax.check import releases
from connector_tax.check.releases import (
    Asked,
    Measurement,
    Record,
    Row,
    changes_of,
    interpreters,
    measure_record,
    write_record,
)
from connector_tax.virtual_time import Bounds, EngineSpec, HookCpu, Interval, Load, Tax, VirtualTime

STARTS = 5


def one(plain_us: float, over_us: float, hooks: dict[str, float]) -> VirtualTime:
    def point(value: float) -> Interval:
        return Interval(value, None, None)

    both = Bounds(point(over_us), point(over_us))
    ratio = Bounds(point(0.01), point(0.02))
    return VirtualTime(
        scheduling="sync",
        starts=1,
        requests=100,
        steps=500,
        rate_per_s=24.0,
        input_tokens=256,
        output_tokens=16,
        taxes=tuple(Tax(m, 10.0, 10.1, ratio, both) for m in ("ttft_p90", "tpot_p50")),
        engine_us_per_step={"plain": point(plain_us), "connector": point(plain_us + over_us)},
        others_us_per_step={"plain": 0.0, "connector": 0.0},
        waits_per_step={"plain": 0.0, "connector": 0.0},
        step_us=both,
        hooks=tuple(HookCpu("worker", n, 1.0, point(us), us, True) for n, us in hooks.items()),
        null_hook_us=0.3,
        work_ratio=point(0.0),
        wide_work_ratio=point(0.0),
        cpu_s=1.0,
        wall_s=1.0,
    )


def row(release: str, plain_us: float, over_us: float, hook_us: float, seed: int) -> Row:
    """Five starts that differ by half a microsecond."""
    noise = np.random.default_rng(seed).normal(0, 0.5, (3, STARTS))
    starts = tuple(
        one(plain_us + a, over_us + b, {"get_finished": hook_us + c / 10, "start_load_kv": 1.0 + b / 10})
        for a, b, c in noise.T.tolist()
    )
    return Row(release, found=starts[0], starts=starts)


def measurement(*rows: Row) -> Measurement:
    return Measurement("nixl", "NIXL", "sync", rows, 60.0)


def test_a_change_is_found_where_it_is_and_named_with_its_hook() -> None:
    rows = (row("0.1", 120, 30, 5, 1), row("0.2", 120, 30, 5, 2), row("0.3", 120, 42, 17, 3))
    found = {(c.connector, c.earlier): c for c in changes_of([measurement(*rows)])}
    assert not found["nixl", "0.1"].significant
    grown = found["nixl", "0.2"]
    assert grown.significant
    assert grown.us_per_step.point == pytest.approx(12, abs=1)
    assert [h.hook for h in grown.hooks] == ["worker/get_finished"]
    assert grown.hooks[0].us_per_step.point == pytest.approx(12, abs=0.3)


def test_a_step_that_grew_without_a_connector_is_plains_change_and_no_connectors() -> None:
    rows = (row("0.1", 120, 30, 5, 1), row("0.2", 140, 30, 5, 2))
    found = {c.connector: c for c in changes_of([measurement(*rows)])}
    assert found["plain"].significant and not found["nixl"].significant


def test_a_release_without_numbers_is_passed_over_and_said(tmp_path: Path) -> None:
    rows = (row("0.1", 120, 30, 5, 1), Row("0.2", missing="NIXL is not available"), row("0.3", 120, 30, 5, 3))
    measured = measurement(*rows)
    changes = tuple(changes_of([measured]))
    assert {(c.earlier, c.later) for c in changes if c.connector == "nixl"} == {("0.1", "0.3")}
    record = Record(
        "2026-01-01T00:00:00Z",
        "check",
        "h200",
        "m",
        {"cores": 2},
        {"0.1": {"vllm": "0.1"}},
        (measured,),
        changes,
    )
    write_record(record, tmp_path)
    table = list(csv.DictReader(io.StringIO((tmp_path / "record.csv").read_text())))
    assert [(line["release"], line["missing"]) for line in table] == [
        ("0.1", ""),
        ("0.2", "NIXL is not available"),
        ("0.3", ""),
    ]
    assert {line["source"] for line in table} == {"virtual time: h200"}
    assert float(table[0]["over_plain_us_per_step"]) == pytest.approx(30, abs=3)
    page = (tmp_path / "record.html").read_text()
    assert "NIXL is not available" in page and "What was installed" in page


def test_differences_of_nothing_are_rarely_called_changes() -> None:
    """Of 200 records of four releases and two connectors' worth of looks, one in twenty at most has a change that is none."""
    wrong = 0
    for seed in range(200):
        rows = tuple(row(f"0.{k}", 120, 30, 5, 10_000 + 10 * seed + k) for k in range(4))
        wrong += any(c.significant for c in changes_of([measurement(*rows)]))
    assert wrong <= 20


def test_too_little_disk_or_memory_is_said_before_anything_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONNECTOR_TAX_CACHE", str(tmp_path))
    monkeypatch.setattr(releases, "MAKE_ENVIRONMENT", tmp_path / "never")
    with pytest.raises(ConfigError, match="GB of memory"):
        interpreters(["0.1"], 1_000_000, print)
    monkeypatch.setattr(releases, "ENVIRONMENT_BYTES", 10**18)
    with pytest.raises(ConfigError, match="Make room, or set CONNECTOR_TAX_CACHE"):
        interpreters(["0.1"], 1, print)


def test_an_interpreter_of_another_release_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "make.sh"
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho \'{"vllm": "9.9"}\'\n')
    script.write_text(f"#!/bin/sh\necho {python}\n")
    for file in (script, python):
        file.chmod(0o755)
    monkeypatch.setenv("CONNECTOR_TAX_CACHE", str(tmp_path))
    monkeypatch.setattr(releases, "MAKE_ENVIRONMENT", script)
    with pytest.raises(ConfigError, match=r"has vLLM 9\.9, not 0\.1"):
        interpreters(["0.1"], 1, print)


def test_a_record_that_was_asked_for_otherwise_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its raw files would pass for what is asked for now."""
    measured: list[str] = []

    def measure(asked: Asked, connector: str, scheduling: str, say: object) -> Measurement:
        measured.append(f"{connector} {scheduling}")
        return measurement(row("0.1", 120, 30, 5, 1))

    monkeypatch.setattr(releases, "_measure", measure)
    monkeypatch.setattr(releases, "installed", lambda python: {"vllm": "0.1"})
    step = StepCosts(1.0, 1.0, 1.0, 1.0)
    gpu = GpuDocument(name="H200", memory_bytes=1, kv_cache_bytes=1, step=step, host=HostCosts())
    plain = EngineSpec("plain", "python", tmp_path, gpu)
    asked = Asked({"0.1": "python"}, plain, {"nixl": ("NIXL", plain)}, Load(requests=10), 5, "h200", "check")
    measure_record(asked, tmp_path / "record", print)
    measure_record(asked, tmp_path / "record", print)
    assert measured == ["nixl async", "nixl sync"], "what is there is not measured again"
    more = replace(asked, connectors={**asked.connectors, "noop": ("No-op", plain)})
    measure_record(more, tmp_path / "record", print)
    assert measured[2:] == ["noop async", "noop sync"], "and another connector may join"
    other_nixl = replace(plain, kv_transfer_config={"kv_role": "kv_both"})
    for other, what in (
        (replace(asked, starts=3), "starts"),
        (replace(asked, load=Load(requests=20)), "load"),
        (replace(asked, connectors={"nixl": ("NIXL", other_nixl)}), "connector"),
    ):
        with pytest.raises(ConfigError, match=f"measured with other {what}"):
            measure_record(other, tmp_path / "record", print)
