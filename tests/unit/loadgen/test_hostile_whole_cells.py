"""Whole cells through worker processes, against servers and faults that a unit cannot show: what one request meets, the cell survives."""

import json
import re
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
from cell_specs import cell_spec
from hostile_wire import DONE, HEAD, TOKEN, data, sized, status, usage
from truth_server import answer_well, truth_server

from connector_tax.base.errors import EngineError
from connector_tax.base.records.target import target_of
from connector_tax.run.loadgen.cell import measure_cell
from connector_tax.run.loadgen.coordinator import worker_pool
from connector_tax.run.loadgen.messages import Observe

FOUR = TOKEN * 4 + usage(b'{"prompt_tokens":8,"completion_tokens":4}') + DONE
LOOP: dict[str, Any] = {"arrival": "concurrency", "rate_per_s": 0.0, "concurrency": 4}
OPEN: dict[str, Any] = {"rate_per_s": 100.0, "inflight_cap": 64}
# A cell that is not told otherwise goes on for a minute.
LONG: dict[str, Any] = {"warmup_s": 0.05, "duration_s": 50.0, "max_cell_s": 60.0, "min_completed": 10}


def heard(sock: socket.socket) -> dict[str, Any]:
    """The next request.

    Raises:
        OSError: there is none.
    """
    read = b""
    while b"\r\n\r\n" not in read or len(read) < read.index(b"\r\n\r\n") + 4 + length_of(read):
        more = sock.recv(65536)
        if not more:
            raise OSError("closed")
        read += more
    request: dict[str, Any] = json.loads(read.partition(b"\r\n\r\n")[2])
    return request


def length_of(read: bytes) -> int:
    found = re.search(rb"(?i)content-length: (\d+)", read)
    assert found is not None
    return int(found[1])


@contextmanager
def threads(answer: Callable[[socket.socket, int, dict[str, Any]], None]) -> Iterator[str]:
    """A server with a thread for each connection, which can block as it likes; requests have numbers, from 1."""
    numbers = iter(range(1, 10**9))
    listening = socket.create_server(("127.0.0.1", 0), backlog=500)

    def serve(sock: socket.socket) -> None:
        try:
            while True:
                request = heard(sock)
                answer(sock, next(numbers), request)
        except OSError:
            pass
        finally:
            sock.close()

    def accept() -> None:
        try:
            while True:
                sock, _ = listening.accept()
                threading.Thread(target=serve, args=(sock,), daemon=True).start()
        except OSError:
            return

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()


def test_the_neighbours_of_an_endless_event_are_answered_while_it_comes() -> None:
    """The tenth request gets 12 MiB of an event without an end, then five others their answers, and then it gets more of it."""
    others = threading.Semaphore(0)

    def answer(sock: socket.socket, number: int, request: dict[str, Any]) -> None:
        if number == 10:
            sock.sendall(HEAD + b"\r\n" + TOKEN + b'data: {"a":"')
            sock.sendall(bytes(12 << 20))
            for _ in range(5):
                others.acquire()
            while True:
                sock.sendall(bytes(1 << 20))
        sock.sendall(sized(FOUR))
        if number > 10:
            others.release()

    spec = cell_spec(**{**OPEN, **LONG, "rate_per_s": 50.0}, num_requests=40, drain_timeout_s=60.0)
    with threads(answer) as url:
        outcome = measure_cell(spec, target_of(url, "m"))
    assert Counter(r.status for r in outcome.requests) == {"ok": 39, "malformed": 1}
    (flooded,) = (r for r in outcome.requests if r.status == "malformed")
    assert flooded.error is not None and flooded.error.startswith("no token in 16 MiB")
    began_ns, ended_ns = flooded.t_send_ns or 0, flooded.t_end_ns or 0
    within = [r for r in outcome.requests if r.status == "ok" and began_ns < (r.t_end_ns or 0) < ended_ns]
    assert len(within) >= 5
    assert outcome.health.given_up is None


RENDERER = "from connector_tax.run.workload.prompts import RequestRenderer as T"
SCHEDULER = "from connector_tax.run.workload.schedulers import ClosedLoop as T"
OF_RENDERER = ("answered", "ended", "lengths", "place")


@pytest.mark.parametrize(
    ("whose", "name", "load"),
    [
        *((RENDERER, name, load) for name in OF_RENDERER for load in (LOOP, OPEN)),
        (SCHEDULER, "ended", LOOP),
    ],
    ids=[
        *(f"{name}, {load}" for name in OF_RENDERER for load in ("closed loop", "open loop")),
        "ended of the scheduler",
    ],
)
def test_a_callback_that_raises_in_the_middle_of_an_answer_ends_the_cell_by_name(
    whose: str, name: str, load: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is called out of the parser of HTTP, which would take it for a fault of the server's."""
    (tmp_path / "sitecustomize.py").write_text(
        f"{whose}\n"
        f"was = T.{name}\n"
        f"def broken(self, seq, *rest):\n"
        f"    if seq == 30:\n"
        f"        raise KeyError(seq)\n"
        f"    return was(self, seq, *rest)\n"
        f"T.{name} = broken\n"
    )
    monkeypatch.setenv("PYTHONPATH", ":".join([str(tmp_path), *(p for p in sys.path if p)]))
    with truth_server(answer_well) as url:
        outcome = measure_cell(cell_spec(**{**LONG, **load}), target_of(url, "m"))
    assert "worker 0: the load generator failed: KeyError: 30" in outcome.health.bottleneck
    assert [r.seq for r in outcome.requests] == list(range(len(outcome.requests)))
    assert {"ok"} <= {r.status for r in outcome.requests} <= {"ok", "aborted"}


@pytest.mark.parametrize("log", ["events_worker0.jsonl", "events_session.jsonl"])
@pytest.mark.parametrize("load", [LOOP, OPEN], ids=["closed", "open"])
def test_an_event_log_on_a_full_disk_is_given_up_by_name_and_the_cell_is_not(
    log: str, load: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / log).symlink_to("/dev/full")
    more = {"rate_per_s": 1000.0, "inflight_cap": 600} if load is OPEN else {}
    spec = cell_spec(**{**LONG, **load, **more}, num_requests=600, drain_timeout_s=60.0)
    with truth_server(answer_well) as url:
        outcome = measure_cell(spec, target_of(url, "m"), observe=Observe(event_log=tmp_path))
    assert Counter(r.status for r in outcome.requests) == {"ok": 600}
    said = "the event log ends early: [Errno 28] No space left on device"
    who = "worker 0: " if "worker" in log else ""
    assert f"{who}{said}" in outcome.health.bottleneck
    (other,) = {"events_worker0.jsonl", "events_session.jsonl"} - {log}
    assert all(json.loads(line) for line in (tmp_path / other).read_text().splitlines())


def test_one_worker_of_two_that_dies_at_hand_out_ends_the_cell_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one is ready, and nobody waits until time is up, which would be said; in the next cell both are there."""
    once = tmp_path / "once"
    (tmp_path / "sitecustomize.py").write_text(
        "import os\n"
        "from connector_tax.run.workload.prompts import RequestRenderer\n"
        "render = RequestRenderer.render\n"
        "def broken(self, seq):\n"
        f"    if seq == 0 and not os.path.exists({str(once)!r}):\n"
        f"        open({str(once)!r}, 'w').close()\n"
        "        raise KeyError(seq)\n"
        "    return render(self, seq)\n"
        "RequestRenderer.render = broken\n"
    )
    monkeypatch.setenv("PYTHONPATH", ":".join([str(tmp_path), *(p for p in sys.path if p)]))
    spec = cell_spec(**OPEN, workers=2, num_requests=40, drain_timeout_s=60.0)
    died = "worker 0 ended with exit code 70 before the cell began"
    with worker_pool(2) as pool, truth_server(answer_well) as url:
        with pytest.raises(EngineError, match=died):
            measure_cell(spec, target_of(url, "m"), pool=pool)
        following = measure_cell(spec, target_of(url, "m"), pool=pool)
    assert Counter(r.status for r in following.requests) == {"ok": 40}
    assert {r.worker for r in following.requests} == {0, 1}


def test_a_closed_loop_against_a_server_that_mostly_refuses_keeps_few_records() -> None:
    """64 slots, and one of 32 requests is answered: it never fails often enough in a row to be given up, and waits all the same."""

    def answer(sock: socket.socket, number: int, request: dict[str, Any]) -> None:
        sock.sendall(sized(FOUR) if number % 32 == 0 else status(b"503 Busy", b"busy"))

    spec = cell_spec(
        **{
            **LOOP,
            "concurrency": 64,
            "warmup_s": 0.0,
            "duration_s": 3.0,
            "max_cell_s": 3.0,
            "min_completed": 10**6,
        }
    )
    with threads(answer) as url:
        outcome = measure_cell(spec, target_of(url, "m"))
    found = Counter(r.status for r in outcome.requests)
    assert found.keys() == {"ok", "http_error"} and found["http_error"] > 20 * found["ok"]
    # Eight rounds of waits and then one a second, each with the few that an answer lets through; at full speed tens of thousands.
    assert len(outcome.requests) < 64 * (8 + 3) * 2
    assert outcome.health.given_up is None


@pytest.mark.parametrize("ids", [b"5", b'"ab"', b"[null,null]", b"[-1,-2]", b"[1e30,2]"])
def test_odd_token_ids_end_one_request_of_a_conversation_and_nothing_else(ids: bytes, tmp_path: Path) -> None:
    """In a read of its own, behind which nobody catches what comes of it; what was answered becomes part of the next prompt."""
    path = tmp_path / "two.jsonl"
    turns = [
        {"new_tokens": 9, "output_tokens": 2},
        {"new_tokens": 4, "output_tokens": 2, "after": [0], "history": 0},
    ]
    path.write_text(json.dumps({"turns": turns}) + "\n")

    def answer(sock: socket.socket, number: int, request: dict[str, Any]) -> None:
        mine = ids if number % 8 == 0 else b"[7,8]"
        event = data(b'{"choices":[{"index":0,"text":"x","token_ids":' + mine + b"}]}")
        sock.sendall(HEAD + b"\r\n" + event)
        sock.sendall(usage(b'{"prompt_tokens":%d,"completion_tokens":2}' % len(request["prompt"])) + DONE)
        raise OSError("that was all")

    spec = cell_spec(**{**LOOP, "sessions": str(path)}, num_requests=80, drain_timeout_s=60.0)
    with threads(answer) as url:
        outcome = measure_cell(spec, target_of(url, "m"))
    assert {r.status for r in outcome.requests} == {"ok", "malformed"}
    odd = [r for r in outcome.requests if r.status == "malformed"]
    assert odd and all((r.error or "").startswith("token_ids that are none") for r in odd)
    assert not any("failed" in reason for reason in outcome.health.bottleneck)
