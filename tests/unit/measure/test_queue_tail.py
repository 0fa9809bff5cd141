"""The sampler's file is read as it grows."""

from pathlib import Path

from connector_tax.run.measure.cell import QueueTail


def line(t_ns: int, waiting: float | None, ok: str = "true") -> str:
    values = "{}" if waiting is None else f'{{"num_requests_waiting":{waiting}}}'
    return f'{{"t_ns":{t_ns},"ok":{ok},"values":{values}}}\n'


def test_only_what_was_written_since_is_read_and_only_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "raw.jsonl"
    path.write_text(line(1, 7.0))
    tail = QueueTail(path)
    assert list(tail()) == []
    with open(path, "a", encoding="utf-8") as stream:
        stream.write(line(2, 3.0) + line(3, None) + line(4, 4.0, ok="false") + line(5, 5.0)[:10])
    assert list(tail()) == [(2, 3.0)]
    with open(path, "a", encoding="utf-8") as stream:
        stream.write(line(5, 5.0)[10:])
    assert list(tail()) == [(5, 5.0)]
    assert list(tail()) == []


def test_a_file_that_is_not_there_yet_has_no_samples(tmp_path: Path) -> None:
    path = tmp_path / "raw.jsonl"
    tail = QueueTail(path)
    assert list(tail()) == []
    path.write_text(line(1, 2.0))
    assert list(tail()) == [(1, 2.0)]
