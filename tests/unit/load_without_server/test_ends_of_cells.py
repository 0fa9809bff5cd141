"""What becomes of requests at the end of a cell: those that came too late, and those of workers that died."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
from made_outcomes import S

from connector_tax.base.records.request import Status
from connector_tax.run.loadgen.messages import Ended
from connector_tax.run.loadgen.outcome import in_time

OVER = (10 * S, "unfinished 1 s after the last send")


def answer(end_ns: int, *, status: Status = "ok", came_ns: int | None = None) -> Ended:
    return Ended(0, S, S, 2 * S, end_ns, end_ns, status, 8, 4, 0, None, came_ns=came_ns)


@pytest.mark.parametrize(
    ("end_s", "came_s", "status"),
    [
        (9, None, "ok"),
        (12, None, "timeout"),
        (12, 9, "ok"),
        (12, 11, "timeout"),
    ],
    ids=["in time", "read as it came, after the drain", "read late, came in time", "came after the drain"],
)
def test_an_answer_after_the_drain_is_a_timeout_whoever_was_away(
    end_s: int, came_s: int | None, status: Status
) -> None:
    """A coordinator that was stopped over the end of the drain told its workers nothing: they went on reading."""
    ended = answer(end_s * S, came_ns=None if came_s is None else came_s * S)
    found = in_time(ended, OVER)
    assert (found.status, found.error) == (status, None if status == "ok" else OVER[1])
    assert in_time(ended, None) == ended


def test_what_failed_keeps_its_name() -> None:
    assert in_time(answer(12 * S, status="http_error"), OVER).status == "http_error"
