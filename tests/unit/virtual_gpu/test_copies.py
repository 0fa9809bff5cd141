"""Copies between a device that is a clock and its host: how long they take, what they wait for, and who waits for them."""

import json
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import virtual_gpu.clock
from virtual_gpu.clock import Clock
from virtual_gpu.streams import Instead, Scale, Streams

from connector_tax.base.steptime.share import cut_clock, stand_ins

MS = 1_000_000
# Of Qwen3-Coder-30B-A3B: 48 layers, keys and values, 16 tokens, heads of two bytes a number; 4 of 128 numbers, and 1 of 8.
TRUE, NARROW = 48 * 2 * 16 * 4 * 128 * 2, 48 * 2 * 16 * 1 * 8 * 2


class Time:
    """Stands still; a thread that sleeps moves it on."""

    def __init__(self) -> None:
        self.now_ns, self.slept_ns = 1000 * MS, 0

    def sleep_until(self, t_ns: int) -> None:
        left_ns = max(0, t_ns - self.now_ns)
        self.slept_ns += left_ns
        self.now_ns += left_ns


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    found = Time()
    source = SimpleNamespace(now_ns=lambda: found.now_ns, sleep_until=found.sleep_until, is_real=False)
    monkeypatch.setattr(virtual_gpu.clock, "source", source)
    return found


@pytest.fixture
def streams(time: Time, tmp_path: Path) -> Streams:
    """Over a link of one byte a nanosecond."""
    return Streams(Clock(tmp_path / "clock.jsonl"), 1_000_000_000)


def test_bytes_are_those_of_the_gpu_and_not_of_the_narrow_memory(streams: Streams, time: Time) -> None:
    """256 tokens of that model are 25 MB, and would be 0.4 MB here."""
    scale = Scale(TRUE, NARROW)
    assert scale.true(NARROW) == TRUE == 1_572_864
    stream = streams.new()
    stream.copy(scale.true(16 * NARROW))
    assert stream.free_at_ns - time.now_ns == 16 * 1_572_864


def test_copies_on_one_stream_queue_and_nobody_waits_for_them(streams: Streams, time: Time) -> None:
    stream, other = streams.new(), streams.new()
    stream.copy(2 * MS)
    stream.copy(3 * MS)
    other.copy(MS)
    assert (stream.free_at_ns, other.free_at_ns) == (time.now_ns + 5 * MS, time.now_ns + MS)
    assert streams.compute.free_at_ns < time.now_ns
    assert time.slept_ns == 0


def test_a_copy_is_finished_when_its_time_is_up_and_not_before(streams: Streams, time: Time) -> None:
    """As vLLM's offloading worker asks: events around a copy that waits for the step that computes what is copied."""
    streams.clock.launch(7 * MS)
    stream, start, end = streams.new(), streams.event(enable_timing=True), streams.event(enable_timing=True)
    stream.wait_stream(streams.current())
    with streams.use(stream):
        start.record(stream)
        streams.current().copy(4 * MS)
        end.record(stream)
    assert streams.current() is streams.compute
    assert start.elapsed_time(end) == 4.0
    time.now_ns += 11 * MS - 1
    assert not end.query()
    time.now_ns += 1
    assert end.query() and time.slept_ns == 0


def test_a_stream_waits_for_an_event_of_another_one(streams: Streams, time: Time) -> None:
    store, load, done = streams.new(), streams.new(), streams.event()
    store.copy(5 * MS)
    done.record(store)
    load.wait_event(done)
    load.copy(MS)
    assert load.free_at_ns == time.now_ns + 6 * MS


def test_who_synchronises_waits_for_what_was_launched(streams: Streams, time: Time) -> None:
    """As LMCache does: the engine's thread sleeps until the step is done, and then for each chunk."""
    streams.clock.launch(7 * MS)
    streams.compute.synchronize()
    assert time.slept_ns == 7 * MS
    store = streams.new()
    for chunk in (1, 2):
        store.copy(2 * MS)
        store.synchronize()
        assert time.slept_ns == (7 + 2 * chunk) * MS
    streams.compute.synchronize()
    assert time.slept_ns == 11 * MS


def test_a_link_without_end_makes_nobody_wait(time: Time, tmp_path: Path) -> None:
    fast = Streams(Clock(tmp_path / "clock.jsonl"), 10**18)
    store = fast.new()
    store.copy(TRUE)
    store.synchronize()
    fast.compute.copy(TRUE)
    fast.compute.synchronize()
    assert time.slept_ns == 0


def test_a_copy_between_steps_delays_the_next_one(streams: Streams, time: Time) -> None:
    """As ExampleConnector's of a layer: on the stream of the steps themselves."""
    streams.clock.launch(7 * MS)
    streams.compute.copy(2 * MS)
    assert streams.clock.launch(MS).t_due_ns == time.now_ns + 10 * MS
    event = streams.event()
    event.t_ns = time.now_ns + 30 * MS
    event.wait()
    assert streams.clock.launch(MS).t_due_ns == time.now_ns + 31 * MS


def test_each_thread_has_a_stream_in_use_of_its_own(streams: Streams) -> None:
    """SimpleCPUOffloadConnector copies from a thread of its own."""
    seen = []
    with streams.use(streams.new()):
        thread = threading.Thread(target=lambda: seen.append(streams.current()))
        thread.start()
        thread.join()
    assert seen == [streams.compute]


def test_a_module_is_seen_as_it_is_but_for_what_was_replaced() -> None:
    seen = Instead(json, dumps=len)
    assert (seen.dumps("abc"), seen.loads("[1]")) == (3, [1])
    with pytest.raises(AttributeError):
        seen.nothing_of_that_name  # noqa: B018 - it is asked for


def test_what_stands_in_is_told_beside_the_rows_and_changes_none(streams: Streams, tmp_path: Path) -> None:
    log = tmp_path / "clock.jsonl"
    assert stand_ins(log) == []
    said = ["OffloadingConnector: no KV is copied; a copy takes as long as 1.57 MB a block at 53 GB/s"]
    streams.clock.note({"kind": "stand_ins", "stand_ins": said})
    streams.clock.wait(streams.clock.launch(MS))
    streams.clock.flush()
    assert stand_ins(log) == said
    assert cut_clock(log, 0, 10**18, tmp_path / "share") == 1
    with open(log, "a") as torn:
        torn.write('{"kind": "stand_ins", "stand')
    assert stand_ins(log) == said
    assert stand_ins(tmp_path / "none") == []
