"""Which cells enter the statistics, and what qualifies those that do."""

from typing import Any

import pytest

from connector_tax.base.documents.cell import Health
from connector_tax.base.records.cell import CellWindow
from connector_tax.base.records.request import RequestRecord
from connector_tax.run.measure.failure import death_of, judge, refused

WINDOW = CellWindow(0, 1, 2, 3, min_completed_reached=True)


def verdict(**facts: Any) -> Any:
    known = {"prefix_cache_hits_delta": 0.0, "engine_death": None, **facts}
    health = known.pop("health", {})
    return judge(known.pop("window", WINDOW), Health(**health), **known)


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


def test_a_cell_that_gave_up_says_why_and_one_behind_a_queue_is_flagged_alone() -> None:
    said = {"given_up": "40 requests failed in a row"}
    assert verdict(health=said).reasons == ("given up: 40 requests failed in a row",)
    assert verdict(health={"given_up": None}).valid
    overloaded = CellWindow(0, 1, 2, 3, min_completed_reached=True, overloaded=True)
    found = verdict(health={"given_up": "the cell ended behind a growing queue"}, window=overloaded)
    assert (found.valid, found.flags) == (True, ("overloaded",))


def test_missing_step_records_are_flagged() -> None:
    assert verdict(steps_agree=False).flags == ("step_records_incomplete",)


def test_a_dead_engine_spoils_the_cell() -> None:
    assert verdict(engine_death="OOM").reasons == ("engine died: OOM",)


@pytest.mark.parametrize(("share", "flagged"), [(None, False), (0.1, False), (0.11, True), (-0.01, False)])
def test_a_host_that_others_use_is_flagged(share: float | None, flagged: bool) -> None:
    found = verdict(others_share=share)
    assert found.valid
    assert ("host_busy" in found.flags) is flagged


def test_a_token_out_of_a_store_spoils_a_cell_of_new_prompts() -> None:
    assert verdict(external_hits_delta=0.0, has_connector=True).valid
    assert "16 tokens" in verdict(external_hits_delta=16.0, has_connector=True).reasons[0]


def test_conversations_and_connectors_that_fake_hits_may_have_them() -> None:
    assert verdict(external_hits_delta=16.0, hits_wanted=True, prefix_cache_hits_delta=16.0).valid
    faked = verdict(external_hits_delta=16.0, hits_faked=True)
    assert (faked.valid, faked.flags) == (True, ("external_hits_faked",))


def test_counters_that_nobody_read_are_flagged_and_lose_no_cell() -> None:
    found = verdict(prefix_cache_hits_delta=None, has_connector=True, metrics_read=False)
    assert found.valid
    assert set(found.flags) == {"metrics_unreadable", "prefix_cache_unchecked", "external_cache_unchecked"}
    assert verdict(external_hits_delta=None).flags == ()  # plain has no connector that could hit


def requests(**statuses: int) -> list[RequestRecord]:
    names = [name for name, n in statuses.items() for _ in range(n)]
    return [
        RequestRecord(
            k,
            k,
            k,
            None,
            None,
            k,
            name,
            None,
            None,
            0,
            0,
            "window",
            None if name == "ok" else f"{name}: why",  # type: ignore[arg-type]
        )
        for k, name in enumerate(names)
    ]


def test_an_engine_that_refuses_is_not_called_saturated() -> None:
    """One in twenty may fail; beyond that the throughput criterion would fire for what is no load."""
    assert refused(requests(ok=95, http_error=5), "RuntimeError: x") is None
    assert refused(requests(ok=94, http_error=6), "RuntimeError: x") == (
        "not answered: 6 of 100 requests failed, the first as http_error (http_error: why); "
        "the engine's log says: RuntimeError: x"
    )
    assert "the engine's log" not in (refused(requests(http_error=3), None) or "")


def test_an_engine_that_is_overloaded_refuses_nothing() -> None:
    assert refused(requests(ok=1, timeout=50, dropped=50), "RuntimeError: x") is None


def test_a_death_is_found_in_the_document_it_was_written_to() -> None:
    assert death_of(verdict(engine_death="OOM")) == "OOM"
    assert death_of(verdict(health={"bottleneck": ("client out of CPU",)})) is None
