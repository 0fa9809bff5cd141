"""Which cells enter the statistics, and what qualifies those that do."""

from typing import Any

import pytest

from connector_tax.measure.verdict import judge
from connector_tax.records.cell import CellWindow

WINDOW = CellWindow(0, 1, 2, 3, min_completed_reached=True)


def verdict(**facts: Any) -> Any:
    known = {"prefix_cache_hits_delta": 0.0, "engine_death": None, **facts}
    health = known.pop("health", {})
    return judge(known.pop("window", WINDOW), health, **known)


def test_a_cell_without_a_fault_is_valid() -> None:
    assert verdict().word == "valid"
    assert verdict().flags == ()


def test_a_prefix_cache_hit_spoils_a_cell_of_new_prompts() -> None:
    assert "16 tokens" in verdict(prefix_cache_hits_delta=16.0).reasons[0]


def test_conversations_are_there_to_hit_the_prefix_cache() -> None:
    talking = verdict(prefix_cache_hits_delta=16.0, hits_wanted=True)
    assert (talking.valid, talking.flags) == (True, ())
    assert verdict(hits_wanted=True).flags == ("prefix_cache_never_hit",)


def test_an_engine_without_the_counter_is_flagged() -> None:
    assert verdict(prefix_cache_hits_delta=None).flags == ("prefix_cache_unchecked",)


@pytest.mark.parametrize("name", ["client_limited", "client_stalled"])
def test_what_the_client_says_of_itself_is_passed_on(name: str) -> None:
    assert verdict(health={name: True}).flags == (name,)


def test_a_client_that_was_the_bottleneck_spoils_the_cell() -> None:
    assert verdict(health={"bottleneck": ["client out of CPU"]}).reasons == ("client out of CPU",)


def test_missing_step_records_are_flagged() -> None:
    assert verdict(steps_agree=False).flags == ("step_records_incomplete",)


def test_a_dead_engine_spoils_the_cell() -> None:
    assert verdict(engine_death="OOM").reasons == ("engine died: OOM",)


@pytest.mark.parametrize(("share", "flagged"), [(None, False), (0.1, False), (0.11, True), (-0.01, False)])
def test_a_host_that_others_use_is_flagged(share: float | None, flagged: bool) -> None:
    found = verdict(others_share=share)
    assert found.valid
    assert ("host_busy" in found.flags) is flagged
