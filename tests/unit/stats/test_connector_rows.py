"""One row per connector: its verdict, why a number is missing, and what qualifies it, as codes."""

from typing import Any

import pytest
from whole_aggregate import example, over_blocks

from connector_tax.base.documents.aggregate import ConnectorRow, aggregate_of
from connector_tax.read.stats.connectors import connector_rows

OWN = "mooncake_both"


@pytest.fixture
def aggregate() -> dict[str, Any]:
    return example()


def row_of(aggregate: dict[str, Any], config: str = OWN) -> ConnectorRow:
    (found,) = [r for r in connector_rows(aggregate_of(aggregate)) if r.config == config]
    return found


def set_tax(aggregate: dict[str, Any], metric: str, point: float | None, *ends: float | None) -> None:
    for tax in aggregate["main_taxes"]:
        if (tax["config"], tax["metric"], tax["reference"]) == (OWN, metric, "ref_safe"):
            low, high = ends or (None, None)
            tax |= {"point": point, "low": low, "high": high, "available": point is not None, "phase": "a"}
            tax |= {"overloaded": [], "reason": None if point is not None else "why"}


def both(aggregate: dict[str, Any], ttft: tuple[float | None, ...], tpot: tuple[float | None, ...]) -> None:
    set_tax(aggregate, "ttft_p90", *ttft)
    set_tax(aggregate, "tpot_p90", *tpot)


NOTHING = (0.0, -0.01, 0.01)


@pytest.mark.parametrize(
    ("ttft", "tpot", "verdict", "clear"),
    [
        ((0.3, 0.2, 0.4), NOTHING, "tax", ("ttft_p90",)),
        ((-0.3, -0.4, -0.2), (0.1, 0.05, 0.2), "tax", ("tpot_p90",)),
        ((-0.3, -0.4, -0.2), NOTHING, "gain", ("ttft_p90",)),
        (NOTHING, NOTHING, "none", ()),
        ((0.3, -0.1, None), NOTHING, "open", ()),
        (NOTHING, (None,), "open", ()),
    ],
    ids=["one", "beside a gain", "gain", "none", "open", "one lost"],
)  # fmt: skip
def test_a_verdict_goes_by_both_intervals(
    aggregate: dict[str, Any], ttft: Any, tpot: Any, verdict: str, clear: tuple[str, ...]
) -> None:
    aggregate["repeats"] = []
    both(aggregate, ttft, tpot)
    found = row_of(aggregate)
    assert (found.verdict, found.clear) == (verdict, clear)


def test_what_plain_differs_by_from_itself_is_noise(aggregate: dict[str, Any]) -> None:
    both(aggregate, (0.02, 0.01, 0.03), NOTHING)
    aggregate["repeats"] = [over_blocks(0.0, -0.05, 0.05)]
    assert row_of(aggregate).verdict == "noise"
    aggregate["repeats"] = [over_blocks(0.0, -0.01, 0.015)]
    assert row_of(aggregate).verdict == "tax"


@pytest.mark.parametrize(
    ("status", "verdict", "code"),
    [
        ("skipped", "skipped", "skipped"),
        ("failed", "failed", "run_failed"),
        ("missing", "missing", "not_measured"),
        ("measured", "failed", "no_number"),
    ],
)
def test_without_a_number_the_row_says_what_became_of_it(
    aggregate: dict[str, Any], status: str, verdict: str, code: str
) -> None:
    both(aggregate, (None,), (None,))
    aggregate["configs"][OWN] |= {"status": status, "reason": None}
    aggregate["cells"] = [{**c, "flags": [], "n_failed": 0, "n_dropped": 0} for c in aggregate["cells"] if c["usable"]]  # fmt: skip
    found = row_of(aggregate)
    assert (found.verdict, found.reason.code, found.reason.subject) == (verdict, code, OWN)


def test_the_reason_names_whose_it_is(aggregate: dict[str, Any]) -> None:
    both(aggregate, (None,), (None,))
    at = aggregate["reference_rates"]["ref_safe_per_s"]
    for cell in aggregate["cells"]:
        if (cell["config"], cell["phase"], cell["rate_per_s"]) == (OWN, "a", at):
            cell["flags"] = ["overloaded"]
    lost = {"reference": "ref_safe", "rate_per_s": at, "metric": "ttft_p90", "blocks": ["r1"], "reason": "x"}
    failed = {"failed_blocks": [{**lost, "config": "plain"}]}
    away = {
        "plain": {**aggregate["configs"]["plain"], "status": "failed", "reason": {"code": "no_usable_cell"}}
    }
    for changed, code, subject in (
        ({}, "saturated", OWN),
        (failed, "requests_failed", "plain"),
        ({"configs": aggregate["configs"] | away}, "plain_missing", "plain"),
    ):
        reason = row_of({**aggregate, **changed}).reason
        assert (reason.code, reason.subject) == (code, subject)


def test_marks_say_what_qualifies_a_row(aggregate: dict[str, Any]) -> None:
    both(aggregate, (0.3, 0.2, None), NOTHING)
    aggregate["configs"][OWN] |= {
        "status": "partial",
        "reason": {"code": "phase_missing", "subject": "b"},
        "copies_kv": "host memory",
    }
    aggregate["outputs"] = []
    for tax in aggregate["main_taxes"]:
        if tax["config"] == OWN and tax["reference"] == "ref_safe" and tax["metric"] == "tpot_p90":
            tax |= {"overloaded": ["own"], "phase": "b"}
    found = set(row_of(aggregate).marks)
    assert {"partial", "overloaded", "other_phase", "open_interval", "copies_kv"} <= found
    assert "copy_clocked" not in found
    aggregate["provenance"] |= {"engine_kind": "virtual_gpu", "virtual_gpu": {"name": "H200"}}
    assert "copy_clocked" in row_of(aggregate).marks


def test_plain_with_a_connectors_settings_has_no_row(aggregate: dict[str, Any]) -> None:
    aggregate["configs"]["plain_matched_x"] = dict(aggregate["configs"]["plain"])
    rows = connector_rows(aggregate_of(aggregate))
    assert {r.config for r in rows}.isdisjoint({"plain", "plain_matched_x"})


def test_before_plain_or_phase_a_was_measured_a_row_waits(aggregate: dict[str, Any]) -> None:
    both(aggregate, (None,), (None,))
    found = row_of({**aggregate, "main_taxes": [], "reference_rates": None})
    assert (found.verdict, found.reason.code) == ("missing", "no_reference_rate")
    for status, verdict in (("missing", "missing"), ("failed", "failed"), ("skipped", "failed")):
        aggregate["configs"]["plain"] |= {"status": status, "reason": None}
        found = row_of(aggregate)
        assert (found.verdict, found.reason.code) == (verdict, "plain_missing")
