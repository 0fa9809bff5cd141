"""One word and an exit code: what is above, what is not judged, and what decides."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from made import request, virtual_time

from connector_tax.base.documents.aggregate import TaxRow
from connector_tax.check.campaign import AGAIN
from connector_tax.check.command import text_of
from connector_tax.check.document import Fault, Found, Launched, RealTime, Verdict
from connector_tax.check.request import GIVEN
from connector_tax.check.verdict import judge

SERVES = Launched(None, answered=16, sent=16)
ROW: dict[str, Any] = {
    "config": GIVEN,
    "reference": "neither",
    "phase": "a",
    "cell_id": "r16_256x16",
    "rate_per_s": 16.0,
    "input_tokens": 256,
    "output_tokens": 16,
    "metric": "tpot_p90",
    "unit": "ratio",
    "n_blocks": 1,
    "n": 240,
    "n_plain": 240,
    "verdict": "tax",
}


def judged(folder: Path, found: Found, cut_short: str | None = None, **asked: Any) -> Verdict:
    return judge(request(folder, **asked), found, cut_short)


def row(point: float, half: float, **more: Any) -> TaxRow:
    return msgspec.convert({**ROW, "point": point, "low": point - half, "high": point + half, **more}, TaxRow)


def test_without_a_limit_any_tax_is_fine_and_the_largest_is_said(tmp_path: Path) -> None:
    taxes = (virtual_time(0.004), virtual_time(0.03, scheduling="sync"))
    found = judged(tmp_path, Found(launched=SERVES, virtual_time=taxes))
    assert (found.code, found.exit_code) == ("measured", 0)
    words = text_of("verdict", found)
    assert words.startswith("verdict: tax of the engine's thread, the largest: ") and "+3.0 %" in words
    assert "synchronous scheduling" in words and "no tax" not in words


def test_a_tax_is_above_the_limit_where_its_whole_lower_bound_is(tmp_path: Path) -> None:
    """What other threads take may or may not delay the engine's."""
    for tax, others, half, code, exit_code in (
        (0.03, 0.03, 0.005, "above", 1),
        (0.022, 0.03, 0.005, "not_above", 0),
        (0.01, 0.50, 0.005, "not_above", 0),
    ):
        found = Found(launched=SERVES, virtual_time=(virtual_time(tax, others, half),))
        verdict = judged(tmp_path, found, limit=0.02)
        assert (verdict.code, verdict.exit_code) == (code, exit_code)
        assert "of the engine's thread" in text_of("verdict", verdict)


@pytest.mark.parametrize("limit", [None, 0.02])
def test_a_connector_that_is_off_has_no_verdict(tmp_path: Path, limit: float | None) -> None:
    """Its tax would be nearly nothing, and below any limit."""
    off = msgspec.structs.replace(SERVES, off="connector is disabled")
    idle = msgspec.structs.replace(virtual_time(0.0), hooks=())
    for found in (
        Found(launched=off, virtual_time=(virtual_time(0.0),)),
        Found(launched=SERVES, virtual_time=(idle,)),
    ):
        verdict = judged(tmp_path, found, limit=limit)
        assert (verdict.code, verdict.exit_code, verdict.why) == ("not_judged", 2, "off")
        assert "is off or on a fallback" in text_of("verdict", verdict)


def test_a_connector_that_leaves_requests_unanswered_does_not_serve(tmp_path: Path) -> None:
    for answered, sent in ((15, 16), (0, 0)):
        launched = msgspec.structs.replace(SERVES, answered=answered, sent=sent)
        verdict = judged(tmp_path, Found(launched=launched, virtual_time=(virtual_time(0.0),)))
        assert (verdict.code, verdict.exit_code) == ("not_served", 2)


@pytest.mark.parametrize("half", [0.03, None])
def test_an_interval_that_is_wider_than_the_limit_judges_nothing(tmp_path: Path, half: float | None) -> None:
    found = Found(launched=SERVES, virtual_time=(virtual_time(0.01, half=half),))
    verdict = judged(tmp_path, found, limit=0.02)
    assert (verdict.exit_code, verdict.why) == (2, "wide")
    assert judged(tmp_path, found).exit_code == 0, "no limit was given"


def test_only_the_latencies_that_were_asked_for_decide(tmp_path: Path) -> None:
    taxes = virtual_time(0.01).taxes
    dear = msgspec.structs.replace(taxes[0], ratio=virtual_time(0.5).taxes[0].ratio)
    result = msgspec.structs.replace(virtual_time(), taxes=(dear, *taxes[1:]))
    found = Found(launched=SERVES, virtual_time=(result,))
    assert judged(tmp_path, found, limit=0.05).exit_code == 1
    assert judged(tmp_path, found, limit=0.05, metrics=("tpot_p50",)).exit_code == 0


def test_a_hook_that_is_not_in_virtual_time_is_not_judged(tmp_path: Path) -> None:
    """Its wait is in no tax, so none is shown to be below the limit; one above it is above all the same."""
    found = Found(launched=SERVES, virtual_time=(virtual_time(0.01, waits="get_finished"),))
    verdict = judged(tmp_path, found, limit=0.02)
    assert (verdict.exit_code, verdict.subject) == (2, "worker/get_finished")
    assert text_of("verdict", verdict).endswith("use --real-time")
    assert judged(tmp_path, found, limit=0.005).exit_code == 1
    assert "not in virtual time: worker/get_finished" in text_of("virtual_time", found.virtual_time[0])


def test_an_engine_that_died_in_a_later_start_leaves_no_limit_kept(tmp_path: Path) -> None:
    died = msgspec.structs.replace(virtual_time(0.01), died="NoOp: RuntimeError: boom")
    found = Found(launched=SERVES, virtual_time=(died,))
    verdict = judged(tmp_path, found, limit=0.02)
    assert (verdict.exit_code, verdict.subject) == (2, "NoOp: RuntimeError: boom")
    assert judged(tmp_path, found, limit=0.005).exit_code == 1


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (Found(fault=Fault("no_vllm", "vllm")), "not_loaded"),
        (Found(launched=Launched("RuntimeError: boom")), "not_served"),
        (Found(real_time=RealTime((), (), "RuntimeError: boom")), "not_served"),
        (Found(launched=SERVES, problem="the engine ended"), "not_judged"),
        (Found(launched=SERVES), "not_judged"),
        (Found(real_time=RealTime((row(0.01, 0.001),), ("again: late",), None)), "not_judged"),
    ],
)
def test_what_does_not_come_to_a_tax_has_code_2(tmp_path: Path, found: Found, code: str) -> None:
    verdict = judged(tmp_path, found, limit=0.02)
    assert (verdict.code, verdict.exit_code) == (code, 2)
    for word in (found.problem, "RuntimeError: boom" if code == "not_served" else None):
        assert word is None or word in text_of("verdict", verdict)


@pytest.mark.parametrize("why", ["ended", "out_of_time"])
def test_what_was_cut_short_is_not_judged_unless_it_is_decided(tmp_path: Path, why: str) -> None:
    found = Found(launched=SERVES, virtual_time=(virtual_time(0.03),))
    assert judged(tmp_path, found, why, limit=0.02).exit_code == 1
    assert judged(tmp_path, found, why, limit=0.05).exit_code == 2
    verdict = judged(tmp_path, Found(), why)
    assert (verdict.exit_code, verdict.why) == (2, why)


def test_in_real_time_the_connectors_own_row_decides_by_what_launches_differ_by(tmp_path: Path) -> None:
    """Plain differs from itself by 0.1 %, so a pair of launches by 12.7 times that at most; or by 50 %, and then nothing is known."""

    def found(again: float) -> Found:
        return Found(real_time=RealTime((row(0.03, 0.005), row(again, 0.005, config=AGAIN)), (), None))

    verdict = judged(tmp_path, found(0.001), limit=0.015)
    assert verdict.exit_code == 1 and verdict.worst is not None and verdict.worst.where == "real_time"
    assert verdict.worst.low == pytest.approx(0.03 - 0.0127, abs=1e-4)
    assert text_of("verdict", verdict).startswith("verdict: tax above 1.5 %: TPOT p90")
    assert judged(tmp_path, found(0.001), limit=0.02).exit_code == 0
    assert judged(tmp_path, found(0.5), limit=0.002).why == "wide"
    assert "plain against itself: +50" in text_of("real_time", found(0.5).real_time)
    alone = Found(real_time=RealTime((row(0.03, 0.005),), (), None))
    assert judged(tmp_path, alone, limit=0.002).why == "wide"
