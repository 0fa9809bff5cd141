"""Step records: both writers write the same keys, the reader forgives a torn end, cells get their share; they can be switched off and are counted."""

import json
from pathlib import Path

import pytest
from step_rows import read_step_file

from connector_tax.base.errors import ArtifactError
from connector_tax.base.steptime import columns
from connector_tax.base.steptime.columns import read_step_columns
from connector_tax.base.steptime.share import StepCount, count_steps, cut, recording, rows_of
from connector_tax.base.steptime.writer import SchedulerRow, WorkerRow, header_line

HEADER = header_line(process="scheduler", pid=1, monotonic_ns=5, utc_ns=6, engine_version="x")


def step(step_id: int, t_ns: int) -> str:
    return SchedulerRow(
        pid=1,
        step_id=step_id,
        t_ns=t_ns,
        duration_ns=2_000_000,
        previous_t_ns=None,
        schedule_us=40,
        update_us=20,
        build_meta_us=[1.0],
        num_running=1,
        num_waiting=0,
        prefill_tokens=0,
        decode_tokens=1,
    ).line


def worker(step_id: int, t_ns: int) -> str:
    return WorkerRow(pid=2, step_id=step_id, t_ns=t_ns, span_us=9.0, hooks_us=[(0.5, 2.0)]).line


def test_the_emulator_writes_the_very_keys_of_the_patch() -> None:
    opened = [1, 2, 3, None, [0, 1000, 1], 8, 9, 10, 11]
    scheduler = {
        "process": "scheduler",
        "pid": 1,
        "hooks": ["build_connector_meta", "0:Child/build_connector_meta"],
    }
    ((_, line),) = rows_of(json.dumps([[opened, 4, 5, 6, [0, 500, 1, 700, 2], None]]), scheduler)
    patch_step = json.loads(line)
    ((_, line),) = rows_of(
        json.dumps([[1, 2, 3, [0, 4000, 1], None]]), {"process": "worker", "pid": 1, "hooks": ["x"]}
    )
    patch_worker = json.loads(line)
    assert list(patch_step) == list(json.loads(step(1, 2)))
    assert list(patch_worker) == list(json.loads(worker(1, 2)))


def test_the_parts_of_a_step_add_up() -> None:
    row = json.loads(step(1, 0))
    assert row["schedule_us"] + row["round_trip_us"] + row["update_us"] == row["step_duration_us"] == 2000


def test_a_torn_last_line_is_noted_and_the_rest_read(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    path.write_text(HEADER + step(1, 10) + step(2, 20)[:-9])
    found = read_step_columns(path)
    assert found.steps.ints["step_id"].tolist() == [1]
    assert found.torn


@pytest.mark.parametrize("block_bytes", [1, 700, 1 << 20])
def test_columns_say_what_the_rows_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_bytes: int
) -> None:
    """However many lines are decoded at once, and also where the last one is torn."""
    monkeypatch.setattr(columns, "BLOCK_BYTES", block_bytes)
    path = tmp_path / "steps.jsonl"
    path.write_text(
        HEADER + "".join(step(i, 10 * i) + worker(i, 10 * i + 1) for i in range(9)) + step(9, 9)[:-9]
    )
    rows, found = read_step_file(path), read_step_columns(path)
    assert found.torn and found.has_worker and found.hook_names["scheduler"] == ["build_connector_meta"]
    for name in (*columns.STEP_INTS, *columns.STEP_FLOATS[:-2]):
        assert {**found.steps.ints, **found.steps.floats}[name].tolist() == [r[name] for r in rows.steps]
    hooks = found.workers.hooks
    assert hooks.padded(4).tolist() == [r["hooks"] for r in rows.worker_steps]


def test_columns_name_the_line_that_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "BLOCK_BYTES", 400)
    path = tmp_path / "steps.jsonl"
    path.write_text(HEADER + step(1, 10) + step(2, 20).replace(':"step"', ':"stop"') + step(3, 30))
    with pytest.raises(ArtifactError, match=r"steps\.jsonl:3: not a step record"):
        read_step_columns(path)


def test_a_whole_last_line_that_is_wrong_is_not_called_torn(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    path.write_text(HEADER + step(1, 10).replace('"t_ns":10,', ""))
    with pytest.raises(ArtifactError, match=r"steps\.jsonl:2: not a step record .* `t_ns`"):
        read_step_columns(path)


def test_more_hooks_than_names_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    path.write_text(HEADER + step(1, 10))
    with pytest.raises(
        ArtifactError, match="a row has 2 numbers of hooks, its process's header has names for 0"
    ):
        read_step_columns(path).steps.hooks.padded(0)


def test_a_cell_gets_the_rows_of_its_time_from_every_process(tmp_path: Path) -> None:
    scheduler, other = tmp_path / "s.jsonl", tmp_path / "w.jsonl"
    scheduler.write_text(HEADER + "".join(step(i, 10 * i) for i in range(6)))
    other.write_text(HEADER.replace("scheduler", "worker") + "".join(worker(i, 10 * i + 1) for i in range(6)))
    out = tmp_path / "cell.jsonl"
    assert cut([scheduler, other], 20, 40, out) == 4
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["kind"] for line in lines[:2]] == ["header", "header"]
    assert [line["t_ns"] for line in lines[2:]] == [20, 21, 30, 31]


def test_off_for_the_time_of_the_body(tmp_path: Path) -> None:
    log = tmp_path / "engine_step.jsonl"
    with recording(log, wanted=False, settle_s=0) as to_cut:
        assert to_cut is None
        assert (tmp_path / "engine_step.jsonl.off").exists()
    assert not list(tmp_path.iterdir())


def test_back_on_after_a_failure(tmp_path: Path) -> None:
    with pytest.raises(KeyError), recording(tmp_path / "x.jsonl", wanted=False, settle_s=0):
        raise KeyError
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("wanted", [True, False])
def test_nothing_is_switched_where_nothing_is_recorded(wanted: bool) -> None:
    with recording(None, wanted=wanted, settle_s=0) as to_cut:
        assert to_cut is None


def test_on_is_the_log_itself(tmp_path: Path) -> None:
    log = tmp_path / "engine_step.jsonl"
    with recording(log, wanted=True, settle_s=0) as to_cut:
        assert to_cut == log
        assert not list(tmp_path.iterdir())


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
