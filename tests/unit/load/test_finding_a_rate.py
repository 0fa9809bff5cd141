"""The search for the highest rate within limits: what it measures, what it answers, and what it admits."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
from cell_specs import cell_spec
from made_outcomes import outcome_of, spec_of, summary_of

from connector_tax.base.documents.cell import Health
from connector_tax.base.documents.load import Demand, Judged, Level, LoadCell, RequestLimit
from connector_tax.base.errors import ConfigError
from connector_tax.load.find_rate import find_rate, judge_cell, too_short
from connector_tax.load.measured import result_of
from connector_tax.load.output import found_lines, page
from connector_tax.load.plan import CellLimit, Sweep, parse_goodput, parse_slo


@dataclass
class Server:
    """Holds every rate up to ``border``."""

    border: float
    asked: list[float] = field(default_factory=list)

    def __call__(self, rate_per_s: float) -> Judged | str:
        self.asked.append(rate_per_s)
        return Judged(rate_per_s, rate_per_s <= self.border, True, ())


@pytest.mark.parametrize("border", [1.0, 7.3, 63.0])
@pytest.mark.parametrize("precision", [0.02, 0.2])
def test_the_border_is_found_as_precisely_as_asked(border: float, precision: float) -> None:
    server = Server(border)
    found = find_rate(Sweep(1.0, 64.0, precision), server)
    assert found.highest_per_s is not None and found.fails_per_s is not None
    assert found.highest_per_s <= border < found.fails_per_s
    assert found.fails_per_s / found.highest_per_s <= 1 + precision + 0.001
    assert len(server.asked) <= 16 and len(set(server.asked)) == len(server.asked)
    assert found.monotonic and found.stopped is None


def test_a_server_that_holds_everything_or_nothing_is_asked_up_to_one_end() -> None:
    found = find_rate(Sweep(1.0, 10.0, 0.05), Server(99.0))
    assert (found.highest_per_s, found.fails_per_s) == (10.0, None)
    server = Server(0.5)
    found = find_rate(Sweep(1.0, 10.0, 0.05), server)
    assert (found.highest_per_s, found.fails_per_s, server.asked) == (None, 1.0, [1.0])


def test_a_search_that_ended_early_does_not_claim_the_highest_rate_asked_for() -> None:
    server = Server(99.0)
    found = find_rate(
        Sweep(1.0, 64.0, 0.05), lambda rate: "client late" if rate > 4 else server(rate), "sessions/s"
    )
    said = found_lines(found)
    assert "4 sessions/s is the highest rate that holds; no higher one was measured" in said
    assert "the search ended early: the cell at 8 sessions/s does not count (client late)" in said
    assert found_lines(find_rate(Sweep(1.0, 4.0, 0.05), server)) == [
        "4 requests/s is the highest rate that holds; no higher one was measured"
    ]
    on_page = page(summary_of(search=found), None, [])
    assert "4 sessions/s is the highest rate" in on_page


def test_no_two_rates_that_are_asked_for_read_alike() -> None:
    """Cells and files have their names."""
    for sweep in (Sweep(5.0, 10.0000001, 0.05), Sweep(1.00000049, 7.3, 0.001)):
        for border in (6.3, 99.0):
            server = Server(border)
            find_rate(sweep, server)
            assert len({f"{rate:g}" for rate in server.asked}) == len(server.asked)
    assert server.asked[-1] == 7.3


NOTHING = result_of(spec_of(), outcome_of(spec_of(), []), percentiles=(), limits=(), hits=None)


def cell(served: float, p90: Level, flags: tuple[str, ...] = (), **changes: Any) -> LoadCell:
    """Of 100 s at 10 requests per second, unless ``demand`` says what came due."""
    done = round(served * 100)
    whole: dict[str, Any] = {
        "demand": Demand("requests", 1000, 1000, done, (0, 1000 - done), 100.0),
        "requests": {"window": 100, "ok": 100},
        "latencies": {"ttft_ms": {"p90": p90}},
        "failed": msgspec.UNSET,
        "flags": flags,
    }
    return msgspec.structs.replace(NOTHING, **{**whole, **changes})


def verdict(*given: Any, **changes: Any) -> tuple[bool, bool]:
    """Whether a cell holds ``LIMIT``, and whether that is sure."""
    judged = judge_cell(cell(*given, **changes), 10.0, LIMIT)
    return judged.holds, judged.sure


LIMIT = (CellLimit("ttft", 90.0, 500.0),)
GOOD = Level(400.0, 380.0, 430.0, 100)


@pytest.mark.parametrize(
    ("served", "arrival", "shape", "sure"),
    [(9.0, "fixed", None, True), (9.0, "poisson", None, False), (8.0, "gamma", 1.0, True), (8.0, "gamma", 0.1, False)],
)  # fmt: skip
def test_arrivals_fall_short_by_chance_as_far_as_they_are_random(
    served: float, arrival: str, shape: float | None, sure: bool
) -> None:
    """Of 1,000 requests 50 may be left over. Twice what chance moves is 63 for Poisson's gaps and 200 for gaps of shape 0.1."""
    spec = cell_spec(arrival=arrival, gamma_shape=shape)
    assert verdict(served, GOOD, spec=spec) == (False, sure)


@pytest.mark.parametrize(
    ("served", "level", "flags", "holds", "sure"),
    [
        (10.0, GOOD, (), True, True),
        (10.0, Level(480.0, 450.0, 530.0, 100), (), True, False),
        (10.0, Level(520.0, 490.0, 560.0, 100), (), False, False),
        (10.0, Level(620.0, 590.0, 660.0, 100), (), False, True),
        (10.0, Level(None, reason="p90 falls on requests that failed"), (), False, True),
        (9.0, GOOD, (), False, True),
        (10.0, GOOD, ("overloaded",), False, True),
    ],
)
def test_a_cell_holds_its_limits_by_its_numbers_and_is_sure_by_their_intervals(
    served: float, level: Level, flags: tuple[str, ...], holds: bool, sure: bool
) -> None:
    judged = judge_cell(cell(served, level, flags), 10.0, LIMIT)
    assert (judged.holds, judged.sure) == (holds, sure)
    assert bool(judged.why) == (not holds or not sure)
    assert not judged.why or served == 10.0 or "served 9 of 10 requests/s" in judged.why


def test_a_limit_that_fails_by_the_clients_own_stop_fails_not_for_sure() -> None:
    """Of 620 ms the client may have been away for 150; it cannot have been for 250 of 720."""
    health = Health(loop_stall_max_us=150_000.0)
    for point, sure in ((620.0, False), (720.0, True)):
        level = Level(point, point - 10, point + 10, 100)
        judged = judge_cell(cell(10.0, level, ("client_stalled",), health=health), 10.0, LIMIT)
        assert (judged.holds, judged.sure) == (False, sure)
        assert (judged.why[-1] == "the client was away for 150 ms at once") == (not sure)


@pytest.mark.parametrize(
    ("share", "sure"),
    [
        (Level(0.07, 0.016, 0.26, 1000), False),
        (Level(0.3, 0.17, 0.47, 1000), True),
        (Level(0.07, None, None, 1000), True),
    ],
    ids=["few", "many", "of no interval"],
)
def test_what_is_left_over_since_it_failed_is_by_chance_as_far_as_failures_are(
    share: Level, sure: bool
) -> None:
    """All others were served: of 1000 requests 70 failed, and in the long run it may be 16."""
    assert share.point is not None
    few = Demand("requests", 1000, 1000, round(1000 * (1 - share.point)), (0, 0), 100.0)
    assert verdict(0.0, GOOD, demand=few, failed=share) == (False, sure)


def test_a_cell_too_short_for_its_answers_fails_no_rate() -> None:
    """Half of the answers take 50 s: in the middle of the window those of its start have not ended yet."""
    filling = Demand("requests", 900, 900, 751, (617, 766), 30.0, fills_s=49.5)
    why = too_short(cell(0.0, GOOD, demand=filling), LIMIT)
    assert why is not None and why.startswith("answers took up to 49.5 s") and "--warmup 50 or more" in why
    told = [
        cell(0.0, GOOD, demand=msgspec.structs.replace(filling, fills_s=msgspec.UNSET)),
        cell(0.0, GOOD, demand=msgspec.structs.replace(filling, done=890)),
        cell(0.0, GOOD, ("overloaded",), demand=filling),
        cell(0.0, Level(620.0, 590.0, 660.0, 100), demand=filling),
    ]
    assert [too_short(one, LIMIT) for one in told] == [None] * 4
    found = find_rate(Sweep(1.0, 64.0, 0.05), lambda rate: why)
    assert [line[:32] for line in found_lines(found)] == [
        "no rate was measured that counts",
        "the search ended early: the cell",
    ]
    assert "no rate was measured that counts" in page(summary_of(search=found), None, [])


def test_a_client_that_was_late_fails_no_rate_for_sure() -> None:
    bad = judge_cell(cell(10.0, Level(620.0, 590.0, 660.0, 100), ("client_limited",)), 10.0, LIMIT)
    assert (bad.holds, bad.sure) == (False, False) and bad.why[-1] == "the client was late"
    assert verdict(10.0, GOOD, ("client_limited",)) == (True, True)


def test_a_rate_that_met_the_clients_own_cap_is_not_said_to_fail_for_sure() -> None:
    """A server that takes a second for each of 40 requests per second has 40 in flight, and the client sends 8."""
    nothing = Level(None, reason="the cell was overloaded")
    requests = {"window": 100, "dropped": 70, "ok": 30}
    full = cell(3.0, nothing, ("overloaded",), requests=requests, spec=cell_spec(inflight_cap=8))
    judged = judge_cell(full, 40.0, LIMIT)
    assert (judged.holds, judged.sure, judged.capped) == (False, False, True)
    assert (
        judged.why[-1] == "70 requests were dropped at the client's own cap of 8 in flight (--inflight-cap)"
    )
    found = find_rate(Sweep(20.0, 40.0, 1.0), lambda r: judged if r > 30 else Server(99.0)(r))
    said = "\n".join(found_lines(found))
    assert "at 40 requests/s the client dropped what came beyond its own cap (--inflight-cap)" in said
    assert "chance alone" not in said


@pytest.mark.parametrize(
    ("failed", "others_ms", "sure"),
    [
        (Level(0.01, 0.0007, 0.12, 200), 20.0, False),
        (Level(0.3, 0.17, 0.47, 200), 20.0, True),
        (Level(0.01, 0.0007, 0.12, 200), 900.0, True),
    ],
    ids=["two of 200", "many", "the others are too slow"],
)
def test_a_percentile_that_falls_on_few_failures_fails_by_chance(
    failed: Level, others_ms: float, sure: bool
) -> None:
    """Two of 200 are one percent, and may be as few as 0.07: p99 may then well hold, and another cell say so."""
    none = Level(None, reason="p99 falls on requests that failed", n=200)
    others = Level(others_ms, others_ms - 2, others_ms + 2, 200)
    of_it = cell(10.0, GOOD, latencies={"ttft_ms": {"p50": others, "p99": none}}, failed=failed)
    judged = judge_cell(of_it, 10.0, (CellLimit("ttft", 99.0, 500.0),))
    assert (judged.holds, judged.sure) == (False, sure)
    assert "p99 falls on requests that failed" in judged.why[0]
    assert ("1.0 [0.1, 12] % of all" in judged.why[0]) == (failed.point == 0.01)


@pytest.mark.parametrize(
    ("demand", "holds", "sure"),
    [
        # By chance 8 arrivals came where the nominal rate says 12, and all of them were served.
        (Demand("requests", 8, 8, 8, (0, 0), 3.0), True, True),
        # Two are left over, of four that were in flight: so many are by chance.
        (Demand("requests", 12, 12, 10, (1, 3), 3.0), False, False),
        (Demand("requests", 40, 40, 30, (0, 10), 4.0), False, True),
        # 6.67 sessions/s of three turns at 8 sessions/s: their turns are served at 94 % of what came due.
        (Demand("sessions", 800, 2133, 2000, (2, 135), 100.0), False, True),
    ],
)
def test_a_rate_is_held_against_what_came_due(demand: Demand, holds: bool, sure: bool) -> None:
    judged = judge_cell(cell(0.0, GOOD, demand=demand), 4.0, LIMIT)
    assert (judged.holds, judged.sure) == (holds, sure)
    assert bool(judged.why) == (not holds)
    if demand.unit == "sessions" and not holds:
        assert judged.why == ("served 20 of 21.3 turns/s that came due at 4 sessions/s",)


def test_limits_are_read_with_their_units() -> None:
    assert parse_slo("ttft_p90=0.5s, tpot_p99.9=50ms") == (
        CellLimit("ttft", 90.0, 500.0),
        CellLimit("tpot", 99.9, 50.0),
    )
    assert parse_goodput("ttft=500us,e2e=10s") == (RequestLimit("ttft", 0.5), RequestLimit("e2e", 10_000.0))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ttft_p90=0ms",
        "ttft=5ms",
        "ttft_p100=5ms",
        "ttft_p90=5ms,ttft_p90=6ms",
    ],
)
def test_what_is_no_limit_is_said(text: str) -> None:
    with pytest.raises(ConfigError, match="--slo"):
        parse_slo(text)
