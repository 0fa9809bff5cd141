"""Why a connector's steps take longer, in words: what its hooks spend on the CPU, its threads, and what is this host's alone."""

import sys
from pathlib import Path
from typing import Any

import pytest

from connector_tax.base.documents.aggregate import Attribution, aggregate_of
from connector_tax.read.report.mechanism import mechanism

sys.path.insert(0, str(Path(__file__).parents[2]))
from whole_aggregate import attribution_of, device_clock, example, hook

HOOKS = [hook("worker/get_finished", 742.0, 60.0), hook("scheduler/build_connector_meta", 12.0, 11.0)]
THREADS = [{"process": "engine_core", "thread": "nixl", "share": 0.99}]
VLLMS_OWN = [{"process": "engine_core", "thread": "gloo", "share": 0.1}]


def entry(hooks: list[dict[str, Any]] = HOOKS) -> Attribution:
    return attribution_of(example(), "nixl_both", hooks=hooks)


def with_cells(aggregate: dict[str, Any], **told: tuple[float, list[dict[str, Any]]]) -> dict[str, Any]:
    """Of each configuration: how late its clock was in Phase A at ref_safe, and its threads."""
    at = aggregate["reference_rates"]["ref_safe_per_s"]
    found = [
        c for c in aggregate["cells"] if (c["phase"], c["rate_per_s"]) == ("a", at) and c["config"] in told
    ]
    for cell in found:
        late_share, spinning = told[cell["config"]]
        cell |= {"cpu": {"spinning": spinning}, "health": {"device_clock": device_clock(late_share)}}
    return aggregate | {"cells": found}


@pytest.fixture
def aggregate() -> dict[str, Any]:
    return with_cells(example(), plain=(0.006, VLLMS_OWN), nixl_both=(0.019, [*VLLMS_OWN, *THREADS]))


def test_hooks_are_split_into_what_ran_and_what_waited(aggregate: dict[str, Any]) -> None:
    first = mechanism(aggregate_of(aggregate), entry())[0]
    assert first == (
        "Its hooks take 754 µs of a step, 71 µs of that on the CPU; the dearest of these is worker/get_finished with 742 µs, 60 µs on the CPU."
    )


def test_a_hook_whose_cpu_time_is_not_known_still_takes_its_wall_time(aggregate: dict[str, Any]) -> None:
    rare = hook("scheduler/request_finished", 3.0, None)
    first = mechanism(aggregate_of(aggregate), entry([*HOOKS, rare]))[0]
    assert first.startswith(
        "Its hooks take 757 µs of a step, at least 71 µs of that on the CPU; the dearest of these is worker/get_finished"
    )


def test_a_short_hook_is_not_said_to_take_more_cpu_than_it_lasts(aggregate: dict[str, Any]) -> None:
    """The reading of the CPU's clock is in its CPU time."""
    short = [hook("worker/get_finished", 3.0, 4.3)]
    assert mechanism(aggregate_of(aggregate), entry(short))[0] == (
        "Its hooks take 3 µs of a step, all of it on the CPU; the dearest of these is worker/get_finished with 3 µs, all of it on the CPU."
    )


def test_a_thread_is_named_that_plain_does_not_have(aggregate: dict[str, Any]) -> None:
    _, threads, clock = mechanism(aggregate_of(aggregate), entry())
    assert "its thread nixl of the process engine_core takes 99 % of a core" in threads
    assert "gloo" not in threads
    assert "ran late by 1.9 % of the device's time with it and 0.6 % with plain" in clock


def test_nothing_is_said_of_what_nobody_measured(aggregate: dict[str, Any]) -> None:
    found = with_cells(aggregate, plain=(0.006, []), nixl_both=(0.008, []))
    unmeasured = [{**h, "cpu_us_per_step": None} for h in HOOKS]
    assert mechanism(aggregate_of(found), entry(unmeasured)) == []
    assert mechanism(aggregate_of(found | {"cells": []}), entry([])) == []
