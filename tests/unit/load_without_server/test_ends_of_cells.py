"""What becomes of requests at the end of a cell: those that came too late, those of workers that died, and all of them at an interrupt."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
from made_outcomes import S, record, spec_of

from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import write_lines
from connector_tax.base.records.cell import CellWindow
from connector_tax.base.records.request import Status
from connector_tax.load import run
from connector_tax.run.loadgen.coordinator import in_time, lost_records, never_sent
from connector_tax.run.loadgen.interrupt import Interrupt
from connector_tax.run.loadgen.messages import Ended
from connector_tax.run.workload.schedulers import Share

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


BATCH = {"arrival": "offline", "rate_per_s": 0.0, "num_requests": 10}
WINDOW = CellWindow(5 * S, 5 * S, 6 * S, 9 * S, False)


@pytest.mark.parametrize(("taken", "known"), [(5, []), (5, [1, 5]), (0, []), (2, [])])
def test_all_of_a_dead_workers_batch_has_a_record_that_was_due_at_t0(taken: int, known: list[int]) -> None:
    """Whether it had sent it or not: all of it was due, and counts as infinitely slow in the window."""
    lost = lost_records(spec_of(**BATCH), Share(1, 2), WINDOW, taken=taken, known=known, reason="killed")
    assert [r.seq for r in lost] == [k for k in (1, 3, 5, 7, 9) if k not in known]
    assert {(r.t_sched_ns, r.status, r.error, r.phase) for r in lost} == {
        (5 * S, "aborted", "killed", "window")
    }


@pytest.mark.parametrize(("taken", "seqs"), [(4, [3, 7]), (1, [])])
def test_of_a_closed_loop_as_many_are_lost_as_a_dead_worker_had_taken(taken: int, seqs: list[int]) -> None:
    """When they were due is known to nobody any more: they count at the cell's end."""
    loop = spec_of(arrival="concurrency", rate_per_s=0.0, concurrency=4)
    lost = lost_records(loop, Share(1, 2), WINDOW, taken=taken, known=[0, 1, 2, 5], reason="killed")
    assert [(r.seq, r.t_sched_ns) for r in lost] == [(seq, 6 * S) for seq in seqs]


def test_what_an_interrupted_batch_did_not_send_has_a_record() -> None:
    known = {0, 2, 4, 6, 8, 1, 3}
    lost = never_sent(spec_of(**BATCH), 2, WINDOW, {0: 6 * S, 1: 6 * S}, known)
    assert [(r.seq, r.t_sched_ns, r.status) for r in lost] == [(k, 5 * S, "aborted") for k in (5, 7, 9)]
    assert {r.error for r in lost} == {"not sent: worker 1 was stopped in the middle of the batch"}


def test_an_interrupt_leaves_no_half_of_the_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor a temporary file."""

    def third_ctrl_c(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(run.output, "picture", lambda cell, requests: "")
    monkeypatch.setattr(os, "fsync", third_ctrl_c)
    spec = spec_of()
    nothing: Any = None
    running = run._Run(SimpleNamespace(out=tmp_path), nothing, nothing, Interrupt(), "", nothing)
    with pytest.raises(KeyboardInterrupt):
        running._write(spec, nothing, [record(0, 0.0)] * 100)
    assert list(tmp_path.iterdir()) == []


def test_lines_are_written_whole_and_in_order(tmp_path: Path) -> None:
    write_lines(tmp_path / "new" / "f.jsonl", ["a", "\udcff", "\N{BULLET}"])
    assert (tmp_path / "new" / "f.jsonl").read_bytes() == b"a\n\\udcff\n\xe2\x80\xa2\n"
    with pytest.raises(ArtifactError, match="cannot write"):
        write_lines(tmp_path / "new", ["a"])
    assert [p.name for p in tmp_path.iterdir()] == ["new"]
