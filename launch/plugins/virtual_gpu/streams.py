"""Streams and events of a device that is a clock: copies take time, but nothing is copied.

They are named and ordered as torch's: a stream's work runs one after the other, an event is reached when the
work queued before it is done, and a stream can wait for another or for an event. Streams do not slow each
other down.
"""

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from virtual_gpu.clock import Clock


@dataclass(frozen=True)
class Scale:
    """Bytes of a block over all layers: on the GPU, and in the narrow memory here."""

    true_bytes: int
    narrow_bytes: int

    def true(self, narrow_bytes: int) -> int:
        """Return the GPU's bytes for ``narrow_bytes`` of memory here."""
        return narrow_bytes * self.true_bytes // self.narrow_bytes


class Stream:
    """One queue of copies.

    Attributes:
        cuda_stream: its number, as torch's streams have one.
    """

    _numbers = itertools.count(1)

    def __init__(self, streams: "Streams") -> None:
        self._streams = streams
        self._free_at_ns = 0
        self.cuda_stream = next(self._numbers)

    @property
    def free_at_ns(self) -> int:
        """Time at which all queued work is done."""
        return self._free_at_ns

    def copy(self, true_bytes: int) -> None:
        duration_ns = self._streams.duration_ns(true_bytes)
        self._free_at_ns = max(self._streams.clock.now_ns(), self._free_at_ns) + duration_ns

    def wait_stream(self, other: "Stream") -> None:
        self._free_at_ns = max(self._free_at_ns, other.free_at_ns)

    def wait_event(self, event: "Event") -> None:
        self._free_at_ns = max(self._free_at_ns, event.t_ns)

    def synchronize(self) -> None:
        self._streams.clock.sleep_until(self.free_at_ns)

    def query(self) -> bool:
        return self._streams.clock.now_ns() >= self.free_at_ns


class ComputeStream(Stream):
    """The stream on which steps are launched."""

    @property
    def free_at_ns(self) -> int:
        return self._streams.clock.free_at_ns

    def copy(self, true_bytes: int) -> None:
        self._streams.clock.launch(self._streams.duration_ns(true_bytes))

    def wait_stream(self, other: Stream) -> None:
        self._streams.clock.not_before(other.free_at_ns)

    def wait_event(self, event: "Event") -> None:
        self._streams.clock.not_before(event.t_ns)


class Event:
    """An event reached at ``t_ns``; at once if nothing was recorded."""

    def __init__(self, streams: "Streams") -> None:
        self._streams = streams
        self.t_ns = 0

    def record(self, stream: Stream | None = None) -> None:
        stream = self._streams.current() if stream is None else stream
        self.t_ns = max(self._streams.clock.now_ns(), stream.free_at_ns)

    def wait(self, stream: Stream | None = None) -> None:
        (self._streams.current() if stream is None else stream).wait_event(self)

    def query(self) -> bool:
        return self._streams.clock.now_ns() >= self.t_ns

    def synchronize(self) -> None:
        self._streams.clock.sleep_until(self.t_ns)

    def elapsed_time(self, end: "Event") -> float:
        """Return milliseconds."""
        return (end.t_ns - self.t_ns) / 1e6


class Streams:
    """The device's streams, and the stream that each thread queues on."""

    def __init__(self, clock: Clock, host_link_bytes_per_s: int) -> None:
        self.clock = clock
        self.host_link_bytes_per_s = host_link_bytes_per_s
        self.compute = ComputeStream(self)
        self._in_use = threading.local()

    def duration_ns(self, true_bytes: int) -> int:
        """Return the duration of one copy over the link to the host."""
        return round(true_bytes * 1e9 / self.host_link_bytes_per_s)

    def new(self, *args: Any, **kwargs: Any) -> Stream:
        """Replace ``torch.cuda.Stream(device, priority)``; a copy has no kernels to yield to."""
        return Stream(self)

    def event(self, *args: Any, **kwargs: Any) -> Event:
        """Replace ``torch.Event(device, enable_timing=...)``."""
        return Event(self)

    def current(self, *args: Any) -> Stream:
        found: Stream = getattr(self._in_use, "stream", self.compute)
        return found

    @contextmanager
    def use(self, stream: Stream) -> Iterator[None]:
        before = self.current()
        self._in_use.stream = stream
        try:
            yield
        finally:
            self._in_use.stream = before


class Instead:
    """A module with some of its attributes replaced, for another module that imports it."""

    def __init__(self, of: Any, **parts: Any) -> None:
        self.__dict__.update(parts)
        self.__dict__["_of"] = of

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.__dict__["_of"], name)
        self.__dict__[name] = found
        return found
