"""Which cells enter the statistics, and what qualifies those that do."""

from typing import Any

import pytest
from made_outcomes import record

from connector_tax.base.documents.cell import Health
from connector_tax.base.records.cell import CellWindow
from connector_tax.base.records.request import RequestRecord
from connector_tax.run.measure.failure import death_of, judge, refused

WINDOW = CellWindow(0, 1, 2, 3, min_completed_reached=True)


def verdict(**facts: Any) -> Any:
    known = {"prefix_cache_hits_delta": 0.0, "engine_death": None, **facts}
    health = known.pop("health", {})
    return judge(known.pop("window", WINDOW), Health(**health), **known)


OVERLOADED = CellWindow(0, 1, 2, 3, min_completed_reached=True, overloaded=True)
UNREAD = {"prefix_cache_hits_delta": None, "has_connector": True, "metrics_read": False}


@pytest.mark.parametrize(
    ("facts", "flags"),
    [
        ({}, set()),
        # Conversations are there to hit the prefix cache.
        ({"prefix_cache_hits_delta": 16.0, "external_hits_delta": 16.0, "hits_wanted": True}, set()),
        ({"hits_wanted": True}, {"prefix_cache_never_hit"}),
        ({"prefix_cache_hits_delta": None}, {"prefix_cache_unchecked"}),
        ({"health": {"client_limited": True}}, {"client_limited"}),
        ({"health": {"client_stalled": True}}, {"client_stalled"}),
        ({"steps_agree": False}, {"step_records_incomplete"}),
        ({"others_share": 0.1}, set()),
        ({"others_share": 0.11}, {"host_busy"}),
        ({"external_hits_delta": 0.0, "has_connector": True}, set()),
        ({"external_hits_delta": 16.0, "hits_faked": True}, {"external_hits_faked"}),
        (UNREAD, {"metrics_unreadable", "prefix_cache_unchecked", "external_cache_unchecked"}),
        ({"external_hits_delta": None}, set()),  # plain has no connector that could hit
        (
            {"health": {"given_up": "the cell ended behind a growing queue"}, "window": OVERLOADED},
            {"overloaded"},
        ),
    ],
)
def test_what_qualifies_a_cell_loses_it_not(facts: dict[str, Any], flags: set[str]) -> None:
    found = verdict(**facts)
    assert (found.word, set(found.flags)) == ("valid", flags)


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"health": {"bottleneck": ["client out of CPU"]}}, "client out of CPU"),
        ({"health": {"given_up": "40 requests failed in a row"}}, "given up: 40 requests failed in a row"),
        ({"engine_death": "OOM"}, "engine died: OOM"),
    ],
)
def test_what_spoils_a_cell_is_its_reason(facts: dict[str, Any], reason: str) -> None:
    assert verdict(**facts).reasons == (reason,)


def test_a_prefix_cache_hit_spoils_a_cell_of_new_prompts() -> None:
    assert "16 tokens" in verdict(prefix_cache_hits_delta=16.0).reasons[0]


def test_a_token_out_of_a_store_spoils_a_cell_of_new_prompts() -> None:
    assert "16 tokens" in verdict(external_hits_delta=16.0, has_connector=True).reasons[0]


def requests(**statuses: int) -> list[RequestRecord]:
    names = [name for name, n in statuses.items() for _ in range(n)]
    return [
        record(k, k, status=name, error=None if name == "ok" else f"{name}: why")
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
