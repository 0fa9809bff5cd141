"""Lists of integers from inside the engine become the rows that a cell keeps, worked by hand."""

import json
from pathlib import Path

from connector_tax.base.steptime.share import cut, headers_of, rows_of

SCHEDULER = {
    "kind": "header",
    "process": "scheduler",
    "pid": 7,
    "hooks": ["build_connector_meta", "take_events", "0:Child/build_connector_meta"],
}
WORKER = {
    "kind": "header",
    "process": "worker",
    "pid": 8,
    "hooks": ["start_load_kv", "get_transfer_results", "get_finished", "save_kv_layer"],
}


def test_a_schedulers_row() -> None:
    """What the step spent in hooks before update_from_output() and in it is one list; three hooks, the last one new."""
    opened = [5, 1_000, 40_000, 2_000_000, [9, 3_000, 1, 500, 1], 12, 3, 100, 11]
    line = json.dumps([[opened, 900_000, 20_000, 960_000, [9, 0, 0, 700, 1, 1_000, 1], None]])
    ((t_ns, text),) = rows_of(line, SCHEDULER)
    row = json.loads(text)
    assert t_ns == row["t_ns"] == 1_000
    assert (row["schedule_us"], row["update_us"], row["step_duration_us"]) == (40, 20, 960)
    assert (row["round_trip_us"], row["step_interval_us"]) == (900, 2000)
    assert row["hooks"] == [3_000, 1, 1_200, 2, 1_000, 1]
    assert row["build_meta_us"] == 4.0
    counts = [row[k] for k in ("num_running", "num_waiting", "prefill_tokens", "decode_tokens")]
    assert counts == [12, 3, 100, 11]


def test_a_workers_row_and_one_older_than_its_header() -> None:
    line = json.dumps(
        [
            [5, 2_000, 800_000, [9, 300, 1, 4_000, 1, 500, 1, 60, 2], [200, 900, 500, 60]],
            [None, 3_000, 1, [0, 300, 1], None],
        ]
    )
    (_, whole), (_, short) = rows_of(line, WORKER)
    row = json.loads(whole)
    assert (row["step_id"], row["span_us"]) == (5, 800)
    assert (row["start_load_kv_us"], row["get_finished_us"]) == (0.3, 4.5)
    assert row["hooks"] == [300, 1, 4_000, 1, 500, 1, 60, 2]
    assert row["hooks_cpu_ns"] == [200, 900, 500, 60]
    assert "hooks_cpu_ns" not in json.loads(short)
    assert json.loads(short)["step_id"] is None
    assert (json.loads(short)["start_load_kv_us"], json.loads(short)["get_finished_us"]) == (0.3, 0)


def test_rows_in_lists_are_cut_by_time_and_a_torn_list_is_left_out(tmp_path: Path) -> None:
    raw = tmp_path / "engine_step.worker.8.jsonl"
    lists = [json.dumps([[k, 1_000 * k, 1, [0], None] for k in ks]) + "\n" for ks in ((1, 2), (3, 4), (5,))]
    raw.write_text(json.dumps(WORKER, separators=(",", ":")) + "\n" + "".join(lists) + "[[6,6000,1,[0")
    out = tmp_path / "cell.jsonl"
    assert cut([raw], 2_000, 5_000, out) == 3
    header, *rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert header == WORKER == headers_of(raw)[0]
    assert [row["step_id"] for row in rows] == [2, 3, 4]
