"""What is the configuration's fault and what the host's; what a failed configuration is spared."""

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from connector_tax.base.artifacts.cells import read_cell
from connector_tax.base.artifacts.layout import CampaignFolder, RunFolder
from connector_tax.base.artifacts.receipts import (
    Receipt,
    read_launches,
    read_receipt,
    write_failure,
    write_receipt,
)
from connector_tax.base.config import load_campaign
from connector_tax.base.documents.receipt import Launch, Launches
from connector_tax.base.errors import EngineError
from connector_tax.base.files import read_json, write_json
from connector_tax.base.plan import campaign_document
from connector_tax.base.records.connector import PLAIN_AGAIN
from connector_tax.run.measure.failure import HostFailed, blame_the_host, earlier_failure
from connector_tax.run.measure.launch import Death
from connector_tax.run.measure.run import measure_run
from connector_tax.run.measure.time_left import OutOfTime, TimeLimit

CONFIG = Path(__file__).parents[3] / "config"
DATE = "2026-01-01"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONNECTOR_TAX_CACHE", str(tmp_path / "cache"))


def campaign(root: Path, fault: str = "", *, stop_grace_s: float = 5, **changes: Any) -> CampaignFolder:
    """The demo with short cells, preflight passed, and a fault in every launch."""
    folder = CampaignFolder(root / "results" / "demo")
    document = campaign_document(
        load_campaign(CONFIG / "demo.yaml"), date=DATE, created_utc="2026-01-01T00:00:00Z"
    )
    config = document.config
    config["cell"] |= {"warmup_s": 0.1, "duration_s": 0.2, "min_completed": 6, "max_cell_s": 1.5}
    config["cell"]["drain_timeout_s"] = 0.5
    config["accuracy"]["prompts"] = 0
    config["phase_a_rates_per_s"] = [10.0, 20.0, 40.0]
    config["engine"]["stop_grace_s"] = stop_grace_s
    config |= changes
    config["engine"]["env"] |= {"CONNECTOR_TAX_FAULT": fault}
    write_json(folder.campaign_file, document)
    decisions = {c["id"]: {"decision": "include", "reason": None} for c in config["connectors"]}
    write_json(folder.preflight_status, {"step_timing_available": False, "configs": decisions})
    write_json(
        folder.reference_rates, {"ref_safe_per_s": 10.0, "ref_load_per_s": 20.0, "b_prime_needed": True}
    )
    return folder


def run_of(folder: CampaignFolder, connector: str, phase: str = "a") -> RunFolder:
    return folder.run(DATE, connector, phase)


def measured(folder: CampaignFolder, connector: str, phase: str = "a") -> Receipt:
    measure_run(folder.campaign_file, connector, phase)
    return read_receipt(run_of(folder, connector, phase))


@pytest.mark.parametrize("phase", ["b", "r1"])
def test_what_failed_in_phase_a_is_not_launched_again(tmp_path: Path, phase: str) -> None:
    folder = campaign(tmp_path, repeats=1)
    write_receipt(run_of(folder, "nixl_both"), campaign="demo", status="failed", reason="why")
    receipt = measured(folder, "nixl_both", phase)
    assert (receipt.status, receipt.reason) == ("skipped", "failed in phase A: why")
    assert not run_of(folder, "nixl_both", phase).launch_sh.exists()


def test_failing_in_another_phase_spares_no_other(tmp_path: Path) -> None:
    """Phase B asks other shapes, and a configuration that lost a block keeps the others."""
    folder = campaign(tmp_path)
    for failed in ("b", "r1"):
        write_receipt(run_of(folder, "nixl_both", failed), campaign="demo", status="failed", reason="why")
    spared = [earlier_failure(folder, DATE, "nixl_both", p) for p in ("a", "b", "b_prime", "r1", "r2")]
    assert spared == [None] * 5


@pytest.mark.parametrize(
    "cause",
    [
        "RuntimeError: No CUDA GPUs are available",
        "RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling NumCudaDevices() that might have "
        "already set an error? Error 802: system not yet initialized",
        "RuntimeError: The NVIDIA driver on your system is too old (found version 12080). Please update your GPU driver",
        "Unable to determine the device handle for GPU0000:3B:00.0: GPU is lost. Reboot the system to recover this GPU",
    ],
)
def test_a_card_that_is_gone_is_the_hosts_fault(cause: str) -> None:
    """Every configuration would fail on it, and none of them is to blame."""
    with pytest.raises(HostFailed, match="That is the host and not the configuration"):
        blame_the_host(cause, "nixl_both")


@pytest.mark.parametrize(
    "cause",
    [
        "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU",
        "RuntimeError: CUDA driver initialization failed, you might not have a CUDA gpu.",
        "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 2: out of memory",
    ],
)
def test_what_a_connector_does_to_a_driver_is_its_own_fault(cause: str) -> None:
    blame_the_host(cause, "nixl_both")


class OneLaunch(TimeLimit):
    """Of a sitting in which no second launch fits."""

    made = 0

    def check_launch(self, *given: Any) -> None:
        OneLaunch.made += 1
        if OneLaunch.made > 1:
            raise OutOfTime("no second one fits")

    def check_cell(self, *given: Any, **named: Any) -> None:
        pass


def sittings_until_decided(folder: CampaignFolder, most: int) -> int:
    """How many sittings of one launch each it takes until there is a receipt."""
    for sitting in range(1, most + 1):
        OneLaunch.made = 0
        try:
            measure_run(folder.campaign_file, "nixl_both", "a", limit=OneLaunch(time.monotonic() + 600, 1.0))
        except OutOfTime:
            continue
        return sitting
    raise AssertionError(f"not decided after {most} sittings")


def test_a_configuration_that_launches_neither_time_leaves_a_receipt_with_its_cause(tmp_path: Path) -> None:
    """In two sittings: each tried it anew, and none had time for the second try that decides it."""
    folder = campaign(tmp_path, "die_at_start")
    assert sittings_until_decided(folder, 3) == 2
    run = run_of(folder, "nixl_both")
    receipt = read_receipt(run)
    assert receipt.status == "failed" and receipt.reason is not None
    assert receipt.reason.startswith("did not launch in 2 tries in a row: the engine died while starting: ")
    assert "told to die at start" in receipt.reason
    assert (run.path / "attempt_1" / "vllm_stderr.log").is_file()
    assert [str(x.failure).split(": ")[0] for x in receipt.launches or ()] == ["nixl_both", "nixl_both"]


def test_only_failures_in_a_row_with_the_same_words_count(tmp_path: Path) -> None:
    """A process or a port has another number in each launch; a launch that served, or another cause, begins anew."""
    file = tmp_path / "launches.json"
    counted = []
    for cause in ("pid 12: no memory", "pid 7: no memory", "no file", None, "no file"):
        launches = [*read_launches(file), Launch(attempt=1, elapsed_s=1.0)]
        write_json(file, Launches(launches=tuple(launches)))
        if cause is not None:
            counted.append(write_failure(file, cause))
    assert counted == [1, 2, 1, 1]


def test_an_engine_that_dies_in_every_cell_is_given_up_after_two(tmp_path: Path) -> None:
    """Also in sittings of one launch each. The cells are kept as evidence, and with its receipt removed it starts from nothing."""
    folder = campaign(tmp_path, "die_on_output:16")
    run = run_of(folder, "nixl_both")
    cells, cause = ("r10_256x16", "r20_256x16"), "RuntimeError: 16 tokens kill this engine (on demand)"
    for sittings in (True, False):
        attempts = len(list(run.path.glob("attempt_*")))
        if sittings:
            assert sittings_until_decided(folder, 5) == 4
        else:
            deaths = measure_run(folder.campaign_file, "nixl_both", "a")
            # Those after which the cell was tried once more among them.
            assert deaths == tuple(Death("a", c, cause) for c in cells for _ in range(2))
            assert len(list(run.path.glob("attempt_*"))) == attempts + 4
        receipt = read_receipt(run)
        assert receipt.status == "failed"
        assert receipt.reason == (
            f"its engine died in each of the 2 cells that it was asked for, 2 times in each: {cause}"
        )
        assert [(c.cell_id, c.verdict) for c in receipt.cells] == [(c, "invalid") for c in cells]
        run.receipt.unlink()


@pytest.mark.parametrize("connector", ["plain", PLAIN_AGAIN])
def test_plain_that_fails_is_an_error_without_a_receipt(tmp_path: Path, connector: str) -> None:
    phase = "a" if connector == "plain" else "r1"
    folder = campaign(tmp_path, "die_at_start", repeats=1)
    with pytest.raises(
        EngineError, match=rf"{connector} cannot be measured in phase .*plain vLLM: did not launch"
    ):
        measure_run(folder.campaign_file, connector, phase)
    assert not run_of(folder, connector, phase).receipt.exists()


@pytest.mark.parametrize(
    "cause",
    [
        "OSError: [Errno 28] No space left on device",
        "it hangs: it gave no token within 60 s though nobody else asked; its log ends with: OSError: [Errno 27] File too large",
        "ValueError: Free memory on device (3.1/95.0 GiB) on startup is less than desired GPU memory utilization (0.9)",
        "OSError: [Errno 98] Address already in use",
    ],
)
def test_a_fault_of_the_host_is_nobodys_failure(cause: str) -> None:
    with pytest.raises(HostFailed, match="That is the host and not the configuration"):
        blame_the_host(cause, "nixl_both")
    blame_the_host("RuntimeError: the connector's own", "nixl_both")


def test_a_launch_that_the_host_spoilt_leaves_no_receipt(tmp_path: Path) -> None:
    # An unknown fault is named by the engine while it starts, and this one reads as a full disk.
    folder = campaign(tmp_path, "No space left on device")
    with pytest.raises(HostFailed, match=r"^nixl_both: the engine died while starting: "):
        measure_run(folder.campaign_file, "nixl_both", "a")
    assert not run_of(folder, "nixl_both").receipt.exists()


def test_an_engine_that_answers_with_http_500_leaves_invalid_cells_with_its_own_words(tmp_path: Path) -> None:
    folder = campaign(tmp_path, "http500:1", phase_a_rates_per_s=[10.0])
    receipt = measured(folder, "nixl_both")
    assert receipt.status == "measured"
    document = read_cell(run_of(folder, "nixl_both").cell("r10_256x16"))
    assert document.verdict == "invalid"
    (reason,) = document.reasons
    assert reason.startswith("not answered: ") and "HTTP 500" in reason
    assert reason.endswith("the engine's log says: RuntimeError: this request was to fail (on demand)")


def test_hits_in_an_external_cache_spoil_a_cell_unless_the_connector_fakes_them(tmp_path: Path) -> None:
    folder = campaign(tmp_path, "external_hits:2", phase_a_rates_per_s=[10.0])
    assert measured(folder, "nixl_both").status == "measured"
    document = read_cell(run_of(folder, "nixl_both").cell("r10_256x16"))
    assert document.verdict == "invalid"
    assert document.external_prefix_cache_hits_delta > 0
    assert document.reasons[0].startswith("external cache hits: ")
    value = read_json(folder.campaign_file)
    for connector in value["config"]["connectors"]:
        connector["ttft_is_no_tax"] = "it fakes hits"
    write_json(folder.campaign_file, value)
    assert measured(folder, "mooncake_both").status == "measured"
    document = read_cell(run_of(folder, "mooncake_both").cell("r10_256x16"))
    assert not [r for r in document.reasons if "hits" in r]
    assert "external_hits_faked" in document.flags


# With every second one, the sampler's own questions could make each of three tries meet the failing one.
@pytest.mark.parametrize(("every", "unreadable"), [(3, False), (1, True)])
def test_metrics_that_fail_once_or_always_never_lose_a_cell(
    tmp_path: Path, every: int, unreadable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # An engine that does not answer is waited for to be seen dead. This one lives, so the test waits for all of that, before a cell and after it.
    monkeypatch.setattr("connector_tax.run.engine.process.KILL_WAIT_S", 0.0)
    folder = campaign(tmp_path, f"metrics500:{every}", phase_a_rates_per_s=[10.0], stop_grace_s=1)
    assert measured(folder, "nixl_both").status == "measured"
    document = read_cell(run_of(folder, "nixl_both").cell("r10_256x16"))
    assert not [r for r in document.reasons if "metrics" in r]
    assert ("metrics_unreadable" in document.flags) is unreadable
    assert (document.prefix_cache_hits_delta is None) is unreadable


def test_plain_without_a_valid_cell_stops_everything_at_once_and_is_tried_again(tmp_path: Path) -> None:
    """All others were measured first, and the next start found nothing to do: its bad cells had a receipt."""
    folder = campaign(tmp_path, fault="http500:1", phase_a_rates_per_s=[10.0])
    measure = [sys.executable, "scripts/measure.py", "--campaign-file", str(folder.campaign_file)]
    run = run_of(folder, "plain")
    times = []
    for _ in range(2):
        told = subprocess.run(
            [*measure, "--connector", "plain", "--phase", "a"],
            cwd=CONFIG.parent,
            capture_output=True,
            text=True,
        )
        assert told.returncode == 2
        assert "plain cannot be measured in phase A, and every tax is taken against plain" in told.stderr
        assert "none of its 1 cells is valid; r10_256x16: " in told.stderr
        assert not run.receipt.exists()
        times.append({cell.cell_id: cell.cell_json.stat().st_mtime_ns for cell in run.finished_cells()})
    assert times[0].keys() == times[1].keys() and all(times[1][c] > t for c, t in times[0].items())
