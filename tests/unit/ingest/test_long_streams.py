"""A stream that somebody filled with anything takes neither memory nor hours."""

import json
import tracemalloc
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from connector_tax.base.records.cell import CellWindow
from connector_tax.base.records.request import RequestRecord
from connector_tax.read.ingest.cells import MOST_FAULTS, read_requests
from connector_tax.read.ingest.samples import read_samples

WINDOW = CellWindow(0, 0, 10**9, 10**9, True)


@pytest.fixture
def line_feeds(tmp_path: Path) -> Path:
    path = tmp_path / "stream.jsonl"
    path.write_bytes(b"\n" * 500_000)
    return path


def peak_bytes(read: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        read()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_requests_that_are_line_feeds_take_no_memory(line_feeds: Path) -> None:
    assert peak_bytes(lambda: read_requests(line_feeds)) < 1_000_000


def test_samples_that_are_line_feeds_take_no_memory(line_feeds: Path) -> None:
    assert peak_bytes(lambda: read_samples(line_feeds, WINDOW)) < 1_000_000
    assert read_samples(line_feeds, WINDOW).n_missed == 500_000


def test_reading_ends_where_the_cell_is_surely_lost(tmp_path: Path) -> None:
    """Five faults are named, and what stands behind too many of them is not looked at."""
    path = tmp_path / "requests.jsonl"
    dropped = RequestRecord(0, 1, None, None, None, None, "dropped", None, None, 0, 0, "window")
    good = json.dumps(asdict(dropped)) + "\n"
    path.write_text("x\n" * (MOST_FAULTS - 1) + good)
    records, faults = read_requests(path)
    assert [(f.code, f.numbers["at"]) for f in faults] == [("line_no_request", k) for k in range(1, 6)]
    assert len(records) == 1
    path.write_text("x\n" * MOST_FAULTS + good)
    assert read_requests(path) == ([], faults)
