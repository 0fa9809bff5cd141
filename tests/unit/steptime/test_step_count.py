"""Recorded steps against the engine's own count of iterations, which knows steps with an output alone."""

from pathlib import Path

import pytest

from connector_tax.base.steptime.share import StepCount, count_steps


@pytest.mark.parametrize(
    ("iterations", "agrees"),
    [(1000, True), (1100, True), (992, True), (1109, True), (985, False), (1115, False), (0, False)],
)
def test_the_count_lies_between_decoding_steps_and_all_of_them(iterations: float, agrees: bool) -> None:
    """1 % of slack for the edges of a cell; steps that compute a part of a prompt may or may not have an output."""
    assert StepCount(decoding=1000, with_tokens=1100).agrees_with(iterations) is agrees


def test_rows_are_counted_by_their_tokens(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    rows = [(0, 4), (8, 4), (8, 0), (0, 0)]
    lines = [f'{{"kind":"step","prefill_tokens":{p},"decode_tokens":{d}}}' for p, d in rows]
    path.write_text("\n".join(['{"kind":"header"}', *lines, '{"kind":"worker_step"}']) + "\n")
    assert count_steps(path) == StepCount(decoding=2, with_tokens=3, of_workers=1)
