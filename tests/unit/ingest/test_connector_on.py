"""A cell counts only if its connector was on: by its launch's log, by counters that must rise, by its hooks."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import Campaign, campaign_config, reseal
from invented_server import Behaviour

from connector_tax.base.artifacts.cells import read_cell
from connector_tax.base.artifacts.layout import CellFolder
from connector_tax.base.connector_off import said_in
from connector_tax.base.documents.receipt import Decision, PreflightStatus
from connector_tax.base.files import write_json
from connector_tax.base.records.cell import CellWindow
from connector_tax.base.steptime.writer import SchedulerRow, WorkerRow, header_line
from connector_tax.read.ingest import CellData, read_campaign
from connector_tax.read.ingest.connector_on import with_proofs
from connector_tax.read.stats.cell_rows import flags_of
from connector_tax.run.measure.cell import _risen

NIXL = "nixl_both"
SECTIONS: dict[str, Any] = {
    "connectors": ["plain", NIXL],
    "phase_a": {"rates_per_s": [2, 4, 8], "input_tokens": 256, "output_tokens": 16},
    "phase_b_prime": {"configs": [], "shapes": []},
    "cell": {"warmup_s": 1, "duration_s": 20, "min_completed": 40, "max_cell_s": 40},
}
QUERIES = "external_prefix_cache_queries"


def count(folder: CellFolder, rise: float) -> None:
    """Say by how much the counter rose over the cell."""
    document = json.loads(folder.cell_json.read_text())
    folder.cell_json.write_text(json.dumps({**document, "counters_delta": {QUERIES: rise}}))


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    return Campaign(tmp_path / "demo", campaign_config(**SECTIONS))


def cells(campaign: Campaign) -> list[CellData]:
    return [c for c in read_campaign(campaign.root).cells() if c.config == NIXL]


def codes(cell: CellData) -> list[str]:
    assert cell.usable == (not cell.reasons)
    return [r.code.removeprefix("off_") for r in cell.off]


def of_all(campaign: Campaign) -> list[list[str]]:
    return [codes(cell) for cell in cells(campaign)]


@pytest.mark.parametrize(
    "line",
    [
        "LMCache ERROR: Failed to initialize LMCacheManager components: x. System will operate in degraded mode (recompute).",
        "LMCache WARNING: LMCache is unhealthy, skipping store operation",
        "LMCache WARNING: LMCache server is unhealthy — entering degraded mode",
        "RuntimeError: No supported cpu connector found.",
        "lmcache.cuda_ops compiled extension not found; CudaDeviceOps stays on the torch baseline for all ops.",
    ],
)
def test_lines_that_say_so_are_known(line: str) -> None:
    assert said_in(["INFO fine", line]) is not None


@pytest.mark.parametrize(
    "line",
    [
        "Scale-out endpoints are disabled. Restart vllm serve with --enable-scale-out to enable them.",
        "LMCache INFO: KV events are disabled.",
        "LMCache INFO: Internal API server disabled. internal_api_server_enabled=False",
        "Metrics reporting is disabled (set MC_TE_METRIC=1 to enable)",
    ],
)
def test_what_healthy_launches_say_is_no_such_line(line: str) -> None:
    assert said_in([line]) is None


def test_a_log_speaks_of_its_own_launch(campaign: Campaign) -> None:
    """The log of an earlier launch lies in a folder of its own."""
    folders = campaign.measure(NIXL)
    run = campaign.run(NIXL, "a")
    for folder in folders[1:]:
        document = json.loads(folder.cell_json.read_text())
        folder.cell_json.write_text(json.dumps({**document, "attempt": 2}))
    campaign.receipt(NIXL)
    (run.path / "attempt_1").mkdir()
    (run.path / "attempt_1" / "vllm_stderr.log").write_text("fine\nWARNING entering degraded mode\n")
    assert of_all(campaign) == [["log"], [], []]
    assert "entering degraded mode" in cells(campaign)[0].off[0].detail


def test_a_counter_that_moves_in_other_cells_must_move_in_each(campaign: Campaign) -> None:
    first, *others = campaign.measure(NIXL)
    count(first, 1000.0)
    for folder in others:
        count(folder, 0.0)
    campaign.receipt(NIXL)
    assert of_all(campaign) == [[], ["counter"], ["counter"]]


def test_a_counter_that_moved_in_preflight_must_move_in_each(campaign: Campaign) -> None:
    """Preflights of before counters were kept say only that the cache was asked."""
    campaign.decisions[NIXL]["checked"] = [
        {"check": "external cache asked", "ok": True, "detail": "632 tokens looked up"}
    ]
    campaign._write_preflight()
    campaign.measure(NIXL, counters_delta={QUERIES: 0.0})
    assert of_all(campaign) == [["counter"]] * 3


def test_a_counter_that_no_launch_ever_moved_proves_nothing(campaign: Campaign) -> None:
    campaign.measure(NIXL, counters_delta={QUERIES: 0.0})
    assert of_all(campaign) == [[]] * 3


def test_a_counter_that_nobody_read_is_unknown_and_said(campaign: Campaign) -> None:
    campaign.decisions[NIXL]["counters"] = {QUERIES: 32}
    campaign._write_preflight()
    campaign.measure(NIXL)
    assert of_all(campaign) == [[]] * 3
    assert {"connector_unproved" in flags_of(cell) for cell in cells(campaign)} == {True}


def test_a_cache_that_nobody_tried_beforehand_has_to_be_asked_all_the_same(tmp_path: Path) -> None:
    """With ``--preflight plain`` no preflight says that the counter moves, and a store that never came up moves it in no cell."""
    sections = {**SECTIONS, "connectors": ["plain", "lmcache_only"]}
    campaign = Campaign(tmp_path / "demo", campaign_config(**sections))
    campaign.measure("lmcache_only", counters_delta={QUERIES: -7.0})
    found = [c for c in read_campaign(campaign.root).cells() if c.config == "lmcache_only"]
    assert [codes(cell) for cell in found] == [["counter"]] * 3
    campaign.measure("lmcache_only", counters_delta={QUERIES: 900.0})
    assert all(c.usable for c in read_campaign(campaign.root).cells())


# (seconds since the cell began, since the host did) -> the counter.
Counter = Callable[[float, float], float]


def rising(_: float, host_s: float) -> float:
    return 1000 * host_s


def sample(folder: CellFolder, counter: Counter, *, keep: slice = slice(None)) -> None:
    """Put a counter into the samples of a cell that has no delta, as old ones have none."""
    window = read_cell(folder).window
    rows = [json.loads(line) for line in folder.metrics.read_text().splitlines()][keep]
    for row in rows:
        row["values"][QUERIES] = counter((row["t_ns"] - window.t0_ns) / 1e9, row["t_ns"] / 1e9)
    folder.metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))
    reseal(folder)


def test_an_old_cell_is_judged_by_its_samples(campaign: Campaign) -> None:
    first, *others = campaign.measure(NIXL)
    sample(first, rising)
    for folder in others:
        sample(folder, lambda *_: 100_000.0)  # what the end of the first cell added is in it
    campaign.receipt(NIXL)
    assert of_all(campaign) == [[], ["counter"], ["counter"]]


def test_what_rose_between_the_samples_of_neighbours_has_risen(campaign: Campaign) -> None:
    """A cell of a second has one sample; those of the cells beside it stand on both sides of it."""
    first, middle, last = campaign.measure(NIXL)
    sample(first, rising)
    sample(middle, lambda *_: 30_000.0, keep=slice(3, 4))
    sample(last, rising)
    campaign.receipt(NIXL)
    assert of_all(campaign) == [[]] * 3


def test_a_counter_that_stops_in_the_middle_of_a_cell_is_found(campaign: Campaign) -> None:
    first, second, third = campaign.measure(NIXL)
    sample(first, rising)
    seconds = (read_cell(second).window.drained_ns - read_cell(second).window.t0_ns) / 1e9
    stopped = 100_000 + 1000 * seconds / 2
    sample(second, lambda s, _: min(100_000 + 1000 * s, stopped))
    # Behind the last prompt nothing is looked up.
    sample(third, lambda s, _: stopped + 1000 * min(s, 0.95 * seconds))
    campaign.receipt(NIXL)
    assert of_all(campaign) == [[], ["counter_stopped"], []]


def test_counters_of_its_own_are_asked_for_where_prompts_are_long_enough(campaign: Campaign) -> None:
    campaign.decisions[NIXL]["counters"] = {"nixl:lookups_total": 32, "nixl:chunks_total": 600}
    campaign._write_preflight()
    campaign.measure(NIXL, counters_delta={"nixl:lookups_total": 5.0, "nixl:chunks_total": 0.0})
    assert of_all(campaign) == [[]] * 3
    campaign.measure(NIXL, counters_delta={"nixl:lookups_total": 0.0, QUERIES: 9.0})
    assert of_all(campaign) == [["counter"]] * 3


@pytest.mark.parametrize(("duration_s", "found"), [(5, []), (12, ["counter"])])
def test_a_counter_that_may_rise_late_is_unknown_in_a_short_cell(
    tmp_path: Path, duration_s: int, found: list[str]
) -> None:
    """LMCache adds to its counters every ten seconds."""
    cell = {
        "warmup_s": 1,
        "duration_s": duration_s,
        "min_completed": 10,
        "max_cell_s": 40,
        "drain_timeout_s": 1,
    }
    campaign = Campaign(tmp_path / "demo", campaign_config(**{**SECTIONS, "cell": cell}))
    campaign.decisions[NIXL]["counters"] = {"lmcache:lookups_total": 32}
    campaign._write_preflight()
    campaign.measure(NIXL, counters_delta={"lmcache:lookups_total": 0.0, QUERIES: 9.0})
    assert of_all(campaign) == [found] * 3
    assert {"connector_unproved" in flags_of(cell) for cell in cells(campaign)} == {not found}


def test_counters_are_asked_for_in_conversations_too(campaign: Campaign) -> None:
    """Their plan says nothing of the prompts' lengths, so counters that took a prompt of 32 tokens were asked of none of them."""
    campaign.measure(NIXL, counters_delta={QUERIES: 0.0})
    found = cells(campaign)
    talks = [replace(c, spec=replace(c.spec, input_tokens=0, sessions="talks.jsonl")) for c in found]
    decision = Decision("include", counters={QUERIES: 32, "nixl:chunks_total": 600})
    status = PreflightStatus(configs={NIXL: decision})
    (judged,) = with_proofs([(campaign.run(NIXL, "c"), talks)], status, campaign.folder)
    assert [codes(cell) for cell in judged] == [["counter"]] * 3


def test_a_counter_that_is_gone_from_the_page_did_not_rise() -> None:
    before, after = {QUERIES: 1.0, "a_total": 2.0}, {QUERIES: 4.0, "a_total": 2.0}
    assert _risen(before, after, ("a_total", "gone_total")) == {
        QUERIES: 3.0,
        "a_total": 0.0,
        "gone_total": 0.0,
    }
    assert _risen(before, None, ("a_total",)) == {}


MEMBERS = ("", "0:MooncakeConnector/", "1:NixlPullConnector/")
HOOKS_US = (20.0, 300.0, 90.0)


def hook_lines(
    window: CellWindow, hooks_us: tuple[float, ...] = HOOKS_US, members: tuple[str, ...] = MEMBERS
) -> list[str]:
    """Steps of a stack: every hook of each member takes so long."""
    lines = [
        header_line(process=p, pid=1, monotonic_ns=1, utc_ns=1, engine_version="x", members=members)
        for p in ("scheduler", "worker")
    ]
    for k in range(40):
        t_ns = window.t0_ns + k * (window.t_stop_ns - window.t0_ns) // 40
        step = SchedulerRow(
            pid=1,
            step_id=k,
            t_ns=t_ns,
            duration_ns=2_000_000,
            previous_t_ns=None,
            schedule_us=40,
            update_us=20,
            build_meta_us=hooks_us,
            num_running=1,
            num_waiting=0,
            prefill_tokens=256 * (k % 4 == 0),
            decode_tokens=1,
        )
        hooks = [(us, us) for us in hooks_us]
        lines.append(step.line)
        if hooks:
            lines.append(WorkerRow(pid=1, step_id=k, t_ns=t_ns + 1000, span_us=900, hooks_us=hooks).line)
    return [line.rstrip("\n") for line in lines]


def with_hooks(
    tmp_path: Path, lines: Callable[[CellWindow], list[str]], in_preflight: tuple[float, ...] = HOOKS_US
) -> Campaign:
    """A campaign whose preflight recorded all hooks, and whose cells have ``lines``."""

    def step_lines(
        window: CellWindow, behaviour: Behaviour, rng: np.random.Generator, most: int
    ) -> list[str]:
        return lines(window) if behaviour.hooks_us else hook_lines(window, (), ())

    campaign = Campaign(tmp_path / "demo", campaign_config(**SECTIONS), step_lines=step_lines)
    steps = campaign.folder.preflight / NIXL / "steps"
    steps.mkdir(parents=True)
    known = hook_lines(CellWindow(0, 0, 10**9, 10**9, True), in_preflight)
    for k, process in enumerate(("scheduler", "worker")):
        own = [line for line in known if f'"process":"{process}"' in line]
        (steps / f"engine_step.{process}.{k}.jsonl").write_text("\n".join(own) + "\n")
    campaign.measure(NIXL)
    return campaign


@pytest.mark.parametrize(
    ("hooks_us", "members", "found"),
    [
        (HOOKS_US, MEMBERS, []),
        ((10.0, 150.0, 45.0), MEMBERS, []),  # on a faster host
        ((20.0, 300.0, 0.5), MEMBERS, ["1:NixlPullConnector"]),
        ((20.0, 300.0), MEMBERS[:2], ["1:NixlPullConnector"]),  # it was left out of the stack
    ],
)
def test_each_child_of_a_stack_is_proved_by_its_hooks(
    tmp_path: Path, hooks_us: tuple[float, ...], members: tuple[str, ...], found: list[str]
) -> None:
    campaign = with_hooks(tmp_path, lambda window: hook_lines(window, hooks_us, members))
    for cell in cells(campaign):
        assert [m for m in MEMBERS[1:] if any(m[:-1] in r.subject for r in cell.off)] == [
            f"{m}/" for m in found
        ]
        assert cell.usable == (not found)


@pytest.mark.parametrize(("light_us", "found"), [(0.0, ["hooks_idle"]), (1.0, [])])
def test_a_light_child_that_was_never_called_was_off(
    tmp_path: Path, light_us: float, found: list[str]
) -> None:
    """NIXL's hooks take some ten microseconds of a step; a recorder names those of a child also where nobody calls them."""
    campaign = with_hooks(
        tmp_path, lambda window: hook_lines(window, (20.0, 300.0, light_us)), (20.0, 300.0, 10.0)
    )
    assert of_all(campaign) == [found] * 3


@pytest.mark.parametrize("counted", [True, False])
def test_hooks_that_nobody_recorded_are_the_recorders_fault_where_a_counter_moved(
    tmp_path: Path, counted: bool
) -> None:
    campaign = with_hooks(tmp_path, lambda window: hook_lines(window, (), ()))
    if counted:
        for folder in campaign.run(NIXL, "a").finished_cells():
            count(folder, 1000.0)
        campaign.receipt(NIXL)
    assert of_all(campaign) == [[] if counted else ["hooks_missing"] * 3] * 3


def test_a_preflight_whose_records_cannot_be_read_proves_nothing(tmp_path: Path) -> None:
    campaign = with_hooks(tmp_path, lambda window: hook_lines(window, (0.0, 0.0, 0.0)))
    for path in (campaign.folder.preflight / NIXL / "steps").iterdir():
        path.write_text("[[[\n{}\n")
    assert of_all(campaign) == [[]] * 3


def test_plain_is_asked_for_nothing(campaign: Campaign) -> None:
    campaign.decisions["plain"]["counters"] = {QUERIES: 0}
    campaign._write_preflight()
    campaign.measure("plain")
    write_json(campaign.run("plain", "a").stderr, "degraded mode")
    assert all(cell.usable for cell in read_campaign(campaign.root).cells())
