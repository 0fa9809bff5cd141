"""Reads one step file into arrays, ten times as fast as into dictionaries.

Blocks of whole lines are decoded one by one, so that only the arrays grow with the file.
"""

import gc
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import open_stream
from connector_tax.base.steptime.hooks_recorded import Unheard, unheard
from connector_tax.base.units import MOST_NS

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# During decoding, the rows of a block take about five times its size.
BLOCK_BYTES = 4 << 20
# 28 hours.
MOST_US = 1e11
# A row of a hundred hooks has 2 KiB, a header with settings about 50 KiB.
MOST_LINE_BYTES = 4 << 20


class _Header(msgspec.Struct, tag_field="kind", tag="header"):
    process: str | None = None
    hooks: list[str] | None = None


class _Step(msgspec.Struct, tag_field="kind", tag="step", gc=False):
    step_id: int
    t_ns: int
    t_update_ns: int
    prefill_tokens: int
    decode_tokens: int
    schedule_us: float | None
    update_us: float | None
    step_duration_us: float | None
    round_trip_us: float | None
    build_meta_us: float | None
    start_load_kv_us: float | None = None
    get_finished_us: float | None = None
    num_running: int | None = None
    hooks: list[int] | None = None
    hooks_cpu_ns: list[int] | None = None


class _WorkerStep(msgspec.Struct, tag_field="kind", tag="worker_step", gc=False):
    pid: int
    step_id: int | None
    t_ns: int
    start_load_kv_us: float | None
    get_finished_us: float | None
    hooks: list[int] | None = None
    hooks_cpu_ns: list[int] | None = None


_Row = _Header | _Step | _WorkerStep
_DECODER = msgspec.json.Decoder(_Row)

STEP_INTS = ("step_id", "t_ns", "t_update_ns", "prefill_tokens", "decode_tokens", "num_running")
STEP_FLOATS = (
    *("schedule_us", "update_us", "step_duration_us", "round_trip_us", "build_meta_us"),
    *("start_load_kv_us", "get_finished_us"),
)
WORKER_INTS = ("pid", "step_id", "t_ns")
WORKER_FLOATS = ("start_load_kv_us", "get_finished_us")


@dataclass(frozen=True, slots=True)
class HookLists:
    """The ``hooks`` of many rows, nanoseconds and calls alternating; or their ``hooks_cpu_ns``.

    Attributes:
        values: all lists, concatenated.
        lengths: of each row's list, shape (rows,).
    """

    values: Ints
    lengths: Ints

    def padded(self, width: int) -> Ints:
        """Return shape (rows, width), padded with 0.

        Raises:
            ArtifactError: a list is longer.
        """
        if self.lengths.size and self.lengths.max() > width:
            raise ArtifactError(
                f"a row has {self.lengths.max()} numbers of hooks, its process's header has names for {width}"
            )
        if (self.lengths == width).all():
            return self.values.reshape(self.lengths.size, width)
        table = np.zeros((self.lengths.size, width), dtype=np.int64)
        table[np.arange(width) < self.lengths[:, None]] = self.values
        return table


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one kind in file order.

    Attributes:
        ints, floats: by name, each of shape (rows,); NaN for a null float.
        hooks: of each row.
        cpu: CPU nanoseconds of each hook; empty in rows without.
    """

    ints: dict[str, Ints]
    floats: dict[str, Floats]
    hooks: HookLists
    cpu: HookLists

    @property
    def n(self) -> int:
        return int(self.hooks.lengths.size)


@dataclass(frozen=True, slots=True)
class StepColumns:
    """The contents of one file.

    Attributes:
        hook_names: by process (``scheduler``, ``worker``), the longest list in its headers: names are only
            added.
        has_worker: whether a worker process began to write.
        unheard: missing hooks by its headers, if there was a connector; see ``heard.py``.
        steps: columns STEP_INTS and STEP_FLOATS.
        workers: columns WORKER_INTS and WORKER_FLOATS; ``step_id`` is 0 if a row has none.
        named: which worker rows have a step id, shape (rows,).
        torn: the last line was cut off, as after ``kill -9``.
    """

    hook_names: dict[str, list[str]]
    has_worker: bool
    unheard: dict[str, Unheard]
    steps: Rows
    workers: Rows
    named: NDArray[np.bool_]
    torn: bool


def read_step_columns(path: Path) -> StepColumns:
    """Decode ``path``; format in ``docs/formats.md``.

    Raises:
        ArtifactError: a line before the last is no step record; names its number.
    """
    headers: list[_Header] = []
    steps: list[Rows] = []
    workers: list[Rows] = []
    named: list[NDArray[np.bool_]] = []
    torn = False
    # The lists would trigger the garbage collector, which walks over all objects; rows cannot form a cycle.
    collecting = gc.isenabled()
    gc.disable()
    try:
        for rows, is_torn in _decoded(path):
            torn = is_torn
            headers += [r for r in rows if type(r) is _Header]
            theirs = [r for r in rows if type(r) is _WorkerStep]
            steps.append(_rows([r for r in rows if type(r) is _Step], STEP_INTS, STEP_FLOATS))
            workers.append(_rows(theirs, WORKER_INTS, WORKER_FLOATS))
            named.append(np.array([r.step_id is not None for r in theirs], dtype=np.bool_))
    except OverflowError as error:
        raise ArtifactError(f"{path}: a number is beyond 64 bits; this is no step record.") from error
    finally:
        if collecting:
            gc.enable()
    found, all_steps = _joined(workers, WORKER_INTS, WORKER_FLOATS), _joined(steps, STEP_INTS, STEP_FLOATS)
    for part in (all_steps, found):
        _refuse_beyond(part, path)
    return StepColumns(
        hook_names=_hook_names(headers),
        has_worker=found.n > 0 or any(h.process == "worker" for h in headers),
        unheard=unheard({"process": h.process, "hooks": h.hooks} for h in headers),
        steps=all_steps,
        workers=found,
        named=np.concatenate([np.empty(0, dtype=np.bool_), *named]),
        torn=torn,
    )


def _refuse_beyond(rows: Rows, path: Path) -> None:
    """Refuse numbers beyond which sums would overflow."""
    ints = [*rows.ints.values(), rows.hooks.values, rows.cpu.values]
    if any(c.size and (c.min() < 0 or c.max() >= MOST_NS) for c in ints) or any(
        (np.abs(c) > MOST_US).any() for c in rows.floats.values()
    ):
        raise ArtifactError(f"{path}: a time or a count that none can be; this is no step record.")


def _decoded(path: Path) -> Iterator[tuple[list[_Row], bool]]:
    """Yield (rows, whether the file ended inside a line) per block."""
    number = 0
    with open_stream(path) as file:
        block = file.read(BLOCK_BYTES)
        while block:
            rest = file.readline(MOST_LINE_BYTES)
            if len(rest) == MOST_LINE_BYTES:
                raise ArtifactError(
                    f"{path}: a line of over {MOST_LINE_BYTES} bytes; this is no step record."
                )
            block += rest
            following = file.read(BLOCK_BYTES)
            try:
                rows, torn = _DECODER.decode_lines(block), False
            except (msgspec.DecodeError, RecursionError):
                rows, torn = _up_to_a_torn_end(block, path, number, not following)
            yield rows, torn
            number += len(rows)
            block = following


def _up_to_a_torn_end(block: bytes, path: Path, before: int, last: bool) -> tuple[list[_Row], bool]:
    """Decode line by line, to find the faulty one."""
    lines = block.removesuffix(b"\n").split(b"\n")
    rows: list[_Row] = []
    for number, line in enumerate(lines, 1):
        try:
            rows.append(_DECODER.decode(line))
        except (msgspec.DecodeError, RecursionError) as error:
            if last and number == len(lines) and not _is_whole(line):
                return rows, True
            text = line[:60].decode(errors="replace")
            raise ArtifactError(
                f"{path}:{before + number}: not a step record ({text!r}: {error})."
            ) from error
    return rows, False


def _is_whole(line: bytes) -> bool:
    """Return whether a faulty line was complete, not cut off."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(row, dict) and row.get("kind") in ("header", "step", "worker_step")


def _rows(rows: Sequence[_Step | _WorkerStep], ints: tuple[str, ...], floats: tuple[str, ...]) -> Rows:
    return Rows(
        {name: np.array([getattr(r, name) or 0 for r in rows], dtype=np.int64) for name in ints},
        {name: np.array([*map(attrgetter(name), rows)], dtype=np.float64) for name in floats},
        _hook_lists([r.hooks or () for r in rows]),
        _hook_lists([r.hooks_cpu_ns or () for r in rows]),
    )


def _hook_lists(lists: Sequence[Sequence[int]]) -> HookLists:
    return HookLists(
        np.fromiter(chain.from_iterable(lists), dtype=np.int64),
        np.fromiter(map(len, lists), dtype=np.int64, count=len(lists)),
    )


def _joined(parts: list[Rows], ints: tuple[str, ...], floats: tuple[str, ...]) -> Rows:
    """Concatenate blocks, or return empty rows without any."""
    none, no_float = np.empty(0, dtype=np.int64), np.empty(0)
    return Rows(
        {name: np.concatenate([none, *(p.ints[name] for p in parts)]) for name in ints},
        {name: np.concatenate([no_float, *(p.floats[name] for p in parts)]) for name in floats},
        *(
            HookLists(
                np.concatenate([none, *(lists(p).values for p in parts)]),
                np.concatenate([none, *(lists(p).lengths for p in parts)]),
            )
            for lists in (attrgetter("hooks"), attrgetter("cpu"))
        ),
    )


def _hook_names(headers: list[_Header]) -> dict[str, list[str]]:
    longest: dict[str, list[str]] = {"scheduler": [], "worker": []}
    for header in headers:
        own = header.hooks or []
        if header.process in longest and len(own) > len(longest[header.process]):
            longest[header.process] = own
    return longest
