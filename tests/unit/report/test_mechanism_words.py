"""Why a connector's steps take longer, in words: what its hooks spend on the CPU, its threads, and what is this host's alone."""

import copy
from typing import Any

import pytest

from connector_tax.read.report.mechanism import mechanism

HOOKS = [
    {"hook": "worker/get_finished", "us_per_step": 742.0, "cpu_us_per_step": 60.0},
    {"hook": "scheduler/build_connector_meta", "us_per_step": 12.0, "cpu_us_per_step": 11.0},
]
ENTRY = {"config": "nixl_both", "hooks": HOOKS}


def cell(config: str, late_share: float, spinning: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "config": config,
        "phase": "a",
        "rate_per_s": 2.0,
        "usable": True,
        "verdict": "valid",
        "saturated": False,
        "cpu": {"spinning": spinning},
        "health": {"device_clock": {"late_share": late_share}},
    }


THREADS = [{"process": "engine_core", "thread": "nixl", "share": 0.99}]
VLLMS_OWN = [{"process": "engine_core", "thread": "gloo", "share": 0.1}]


@pytest.fixture
def aggregate() -> dict[str, Any]:
    return {
        "reference_rates": {"ref_safe_per_s": 2.0},
        "cells": [cell("plain", 0.006, VLLMS_OWN), cell("nixl_both", 0.019, [*VLLMS_OWN, *THREADS])],
    }


def test_hooks_are_split_into_what_ran_and_what_waited(aggregate: dict[str, Any]) -> None:
    first = mechanism(aggregate, ENTRY)[0]
    assert first == (
        "Its hooks take 754 µs of a step, 71 µs of that on the CPU; the dearest is worker/get_finished with 742 µs, 60 µs on the CPU."
    )


def test_a_hook_whose_cpu_time_is_not_known_still_takes_its_wall_time(aggregate: dict[str, Any]) -> None:
    rare = {"hook": "scheduler/request_finished", "us_per_step": 3.0, "cpu_us_per_step": None}
    first = mechanism(aggregate, {**ENTRY, "hooks": [*HOOKS, rare]})[0]
    assert first.startswith(
        "Its hooks take 757 µs of a step, at least 71 µs of that on the CPU; the dearest is worker/get_finished"
    )


def test_a_short_hook_is_not_said_to_take_more_cpu_than_it_lasts(aggregate: dict[str, Any]) -> None:
    """The reading of the CPU's clock is in its CPU time."""
    short = [{"hook": "worker/get_finished", "us_per_step": 3.0, "cpu_us_per_step": 4.3}]
    assert mechanism(aggregate, {**ENTRY, "hooks": short})[0] == (
        "Its hooks take 3 µs of a step, all of it on the CPU; the dearest is worker/get_finished with 3 µs, all of it on the CPU."
    )


def test_a_thread_is_named_that_plain_does_not_have(aggregate: dict[str, Any]) -> None:
    _, threads, clock = mechanism(aggregate, ENTRY)
    assert "its thread nixl of the process engine_core takes 99% of a core" in threads
    assert "gloo" not in threads
    assert "ran late by 1.9% of the device's time with it and 0.6% with plain" in clock


def test_nothing_is_said_of_what_nobody_measured(aggregate: dict[str, Any]) -> None:
    found = copy.deepcopy(aggregate)
    found["cells"] = [cell("plain", 0.006, []), cell("nixl_both", 0.008, [])]
    unmeasured = [{**h, "cpu_us_per_step": None} for h in HOOKS]
    assert mechanism(found, {**ENTRY, "hooks": unmeasured}) == []
    assert mechanism({}, {}) == []
