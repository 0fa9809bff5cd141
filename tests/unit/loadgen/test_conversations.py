"""Conversations over sockets: histories are what the server saw and said, and nothing goes out too early."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
from session_graphs import linear
from truth_server import DONE, Reply, truth_server, usage_event

from connector_tax.base.records.cell import CellSpec
from connector_tax.base.records.request import RequestRecord
from connector_tax.base.records.sessions import read_sessions
from connector_tax.base.records.target import target_of
from connector_tax.run.loadgen.cell import CellOutcome, measure_cell
from connector_tax.run.loadgen.coordinator import worker_pool
from connector_tax.run.loadgen.health import session_health

TURN = {"new_tokens": 4, "output_tokens": 2, "after": [0], "history": 0, "wait_s": 0.05}
SESSION = {"turns": [{"new_tokens": 9, "output_tokens": 3}, TURN, {**TURN, "after": [1], "history": 1}]}


class Server:
    """Answers with numbered tokens and remembers every prompt by its answer."""

    def __init__(self, *, fails_at: int = 0, with_ids: bool = True) -> None:
        self.prompts: list[list[int]] = []
        self.asked_for_ids: list[bool] = []
        self.answers: list[list[int]] = []
        self._fails_at = fails_at
        self._with_ids = with_ids

    async def __call__(self, reply: Reply, request: dict[str, Any], number: int) -> None:
        if number == self._fails_at:
            reply.head("500 Internal Server Error")
            reply.body(b"no")
            reply.end()
            return
        ids = [number * 10 + k for k in range(request["max_tokens"])]
        self.prompts.append(request["prompt"])
        self.asked_for_ids.append("return_token_ids" in request)
        self.answers.append(ids)
        reply.head()
        for token_id in ids:
            choice = {"index": 0, "text": "x"} | ({"token_ids": [token_id]} if self._with_ids else {})
            reply.body(b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n")
            await asyncio.sleep(0.002)
        reply.body(usage_event(len(request["prompt"]), len(ids)) + DONE)
        reply.end()


def measure(
    tmp_path: Path, server: Server, workers: int = 1, session: dict[str, Any] = SESSION, **changes: Any
) -> CellOutcome:
    path = tmp_path / "chat.jsonl"
    path.write_text(json.dumps(session) + "\n")
    spec = CellSpec(
        *("a", 20.0, 0, 0, "fixed", 0.05, 0.5, 5, 3.0, 1.0, 64, 1, 10, 100),
        workers=workers,
        sessions=str(path),
        **changes,
    )
    assert spec.cell_id == "r20_chat"
    with worker_pool(workers) as pool, truth_server(server) as url:
        return measure_cell(spec, target_of(url, "m"), pool=pool)


@pytest.mark.parametrize("workers", [1, 2])
def test_each_turn_begins_with_all_that_was_said(tmp_path: Path, workers: int) -> None:
    server = Server()
    outcome = measure(tmp_path, server, workers)
    assert {r.status for r in outcome.requests} == {"ok"}
    said = {tuple(p): a for p, a in zip(server.prompts, server.answers, strict=True)}
    lengths = {len(p) for p in server.prompts}
    assert lengths == {9, 9 + 3 + 4, 9 + 3 + 4 + 2 + 4}
    for prompt in server.prompts:
        if len(prompt) > 9:
            before = next(p for p in said if len(p) < len(prompt) and prompt[: len(p)] == list(p))
            answer = said[before]
            assert prompt[len(before) : len(before) + len(answer)] == answer
    figures = outcome.health.sessions
    assert figures.early == figures.late == figures.sessions_with_a_failure == 0
    assert figures.dependent_turns > 5
    assert {r.session for r in outcome.requests} == set(range(figures.sessions))
    assert '"session":0,"turn":0' in outcome.requests[0].to_line()


@pytest.mark.parametrize("keep", [False, True])
def test_sessions_that_are_kept_go_on_with_what_was_answered(tmp_path: Path, keep: bool) -> None:
    """A turn of one session fails and nothing can follow on it; the cell goes on, and no other session knows of it."""
    outcome = measure(tmp_path, Server(fails_at=3), keep_failed_sessions=keep)
    (failed,) = [r for r in outcome.requests if r.status == "http_error"]
    ended = [r.turn for r in outcome.requests if r.session == failed.session]
    assert ended == list(range((failed.turn or 0) + 1))
    assert {r.status for r in outcome.requests} == {"ok", "http_error"}
    assert outcome.health.sessions.sessions_with_a_failure == 1
    assert not [said for said in outcome.health.bottleneck if "worker" in said]
    assert outcome.window.min_completed_reached
    assert max(r.session or 0 for r in outcome.requests) > (failed.session or 0) + 3


def test_a_server_without_token_ids_is_named(tmp_path: Path) -> None:
    outcome = measure(tmp_path, Server(with_ids=False))
    assert {r.status for r in outcome.requests} == {"malformed"}
    assert "return_token_ids" in (outcome.requests[0].error or "")


def test_turns_without_a_history_need_no_token_ids(tmp_path: Path) -> None:
    """A trace of single turns, and turns that only wait for another, are sent to any server."""
    roots = [{"new_tokens": 9, "output_tokens": 3}, {"new_tokens": 4, "output_tokens": 2, "after": [0]}]
    server = Server(with_ids=False)
    outcome = measure(tmp_path, server, session={"turns": roots})
    assert {r.status for r in outcome.requests} == {"ok"} and len(outcome.requests) > 5
    assert not any(server.asked_for_ids)


def record(session: int, turn: int, sent_ms: float, ended_ms: float) -> RequestRecord:
    times = (round(t * 1e6) for t in (sent_ms, sent_ms, ended_ms, ended_ms, ended_ms))
    return RequestRecord(session * 2 + turn, *times, "ok", 9, 3, 0, 0, "window", session=session, turn=turn)


def test_a_turn_that_goes_out_too_early_is_counted() -> None:
    """Ready 50 ms after the first ended at 100 ms: sent at 149 ms it is early, at 152 ms it is 2 ms behind."""
    sessions = (linear(2, first_tokens=9, next_tokens=2, output_tokens=3, wait_s=0.05),)
    rows = [record(0, 0, 0, 100), record(0, 1, 149, 200), record(1, 0, 0, 100), record(1, 1, 152, 200)]
    figures = session_health(rows, sessions)
    assert (figures.early, figures.late, figures.dependent_turns) == (1, 0, 2)
    assert figures.delay_us["p50"] == pytest.approx(500)
    assert session_health([record(0, 0, 0, 100), record(0, 1, 6000, 6100)], sessions).late == 1


def test_the_documented_example_is_a_session_file(tmp_path: Path) -> None:
    from connector_tax.base.records import sessions

    assert sessions.__doc__ is not None
    text = sessions.__doc__.split("::\n\n")[1].split("\n\n")[0]
    path = tmp_path / "example.jsonl"
    path.write_text(" ".join(text.split()))
    assert len(read_sessions(path)[0].turns) == 2
