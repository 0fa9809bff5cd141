"""Results of other tools mean what their own single requests say, by our names; what a file does not have is not made up."""

import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[2]))
from made_outcomes import failed, outcome_of, record, spec_of

from connector_tax.base.documents.load import LoadCell, Summary
from connector_tax.base.errors import ConfigError
from connector_tax.base.files import write_json
from connector_tax.load.comparing import compare_files
from connector_tax.load.foreign import read_results
from connector_tax.load.foreign_result import ForeignResult, SingleRequests
from connector_tax.load.measured import result_of
from connector_tax.load.table import level_text

SAMPLES = Path(__file__).parents[2] / "data" / "foreign"
VLLM, PLAIN = SAMPLES / "vllm_detailed.json", SAMPLES / "vllm_plain.json"
GUIDELLM, TWO_LOADS = SAMPLES / "guidellm.json", SAMPLES / "guidellm_two_loads.json"
AIPERF, RECORDS = "profile_export_aiperf.json", "profile_export.jsonl"
FAILURES, WELL = SAMPLES / "aiperf_failures", SAMPLES / "aiperf_well"
NOTHING = {"p50": None, "p90": None, "p99": None}


def read_result(path: Path) -> ForeignResult:
    (found,) = read_results(path)
    return found


def loaded(path: Path) -> Any:
    return json.loads(path.read_text())


def altered(path: Path, into: Path, change: Callable[[Any], None]) -> Path:
    value = loaded(path)
    change(value)
    into.write_text(json.dumps(value))
    return into


def percentiles(values: Any) -> dict[str, float]:
    """Linear between order statistics, as numpy has them."""
    return {f"p{q}": pytest.approx(np.percentile(values, q), rel=1e-12) for q in (50, 90, 99)}


def seen(values: Any, counts: Any) -> dict[str, float]:
    """The least value that a share q of all counts does not exceed. Shares are added up as guidellm adds them: nine of ten are a
    little less than 0.9, so that of ten values the largest is its p90."""
    order = np.argsort(values)
    shares = np.cumsum(np.asarray(counts)[order] / np.sum(counts))
    rows = np.searchsorted(shares, (0.5, 0.9, 0.99))
    found = np.asarray(values)[order][rows]
    return {f"p{q}": pytest.approx(value, rel=1e-9) for q, value in zip((50, 90, 99), found, strict=True)}


def test_vllm_is_what_its_own_requests_say() -> None:
    raw, found = loaded(VLLM), read_result(VLLM)
    good = [k for k, error in enumerate(raw["errors"]) if not error]
    assert (found.tool, found.version, found.load) == ("vllm bench serve", None, "20.0 req/s")
    assert (found.completed, found.failed) == (len(good), 4) == (26, 4)
    assert found.requests_per_s == pytest.approx(26 / found.duration_s)
    assert found.output_tokens_per_s == pytest.approx(sum(raw["output_lens"]) / found.duration_s)
    gaps = [gap for k in good for gap in raw["itls"][k]]
    ends = [raw["ttfts"][k] + sum(raw["itls"][k]) for k in good]
    paces = [sum(raw["itls"][k]) / (raw["output_lens"][k] - 1) for k in good]
    assert found.latencies_ms == {
        "ttft_ms": percentiles([1000 * raw["ttfts"][k] for k in good]),
        "tpot_ms": percentiles(1000 * np.array(paces)),
        "itl_ms": percentiles(1000 * np.array(gaps)),
        "e2e_ms": percentiles(1000 * np.array(ends)),
    }
    requests = found.requests
    assert requests is not None
    for name in ("ttft_ms", "tpot_ms", "e2e_ms"):
        assert found.latencies_ms[name] == percentiles(getattr(requests, name))
    assert found.latencies_ms["itl_ms"] == percentiles(np.concatenate(requests.itl_ms))
    assert "Its percentiles leave out the 4 requests that failed." in found.notes


def test_vllm_without_details_has_no_p90() -> None:
    raw, found = loaded(PLAIN), read_result(PLAIN)
    assert found.load == "20.0 req/s, at most 4 at once"
    assert found.latencies_ms["ttft_ms"] == {
        "p50": raw["median_ttft_ms"],
        "p90": None,
        "p99": raw["p99_ttft_ms"],
    }
    assert found.latencies_ms["e2e_ms"] == NOTHING
    assert found.requests is not None
    assert found.requests == SingleRequests(e2e_ms=found.requests.e2e_ms)
    assert sorted(found.requests.e2e_ms) == pytest.approx(sorted(1000 * t for t in raw["latencies"] if t))
    (note,) = (n for n in found.notes if "--max-concurrency" in n)
    assert note.endswith(f"here up to {1000 * max(raw['queue_times']):.1f} ms.")


def test_vllm_of_no_success_has_no_latencies(tmp_path: Path) -> None:
    """It writes 0 there."""

    def fail(value: Any) -> None:
        value.update({k: 0.0 for k in value if k.endswith("_ms")}, completed=0, failed=30, errors=["no"] * 30)

    found = read_result(altered(VLLM, tmp_path / "r", fail))
    assert all(p == NOTHING for p in found.latencies_ms.values())
    assert found.requests == SingleRequests()


def test_vllm_of_an_earlier_version_has_the_same_requests(tmp_path: Path) -> None:
    def forget(value: Any) -> None:
        for name in ("latencies", "queue_times", "failed", "start_times"):
            del value[name]

    found, now = read_result(altered(VLLM, tmp_path / "r", forget)), read_result(VLLM)
    assert found.failed is None
    assert found.requests is not None and now.requests is not None
    assert sorted(found.requests.e2e_ms) == pytest.approx(sorted(now.requests.e2e_ms))
    assert sorted(found.requests.ttft_ms) == sorted(now.requests.ttft_ms)


def test_requests_stand_in_order_of_their_start(tmp_path: Path) -> None:
    def turn(value: Any) -> None:
        for name in ("start_times", "ttfts", "itls", "latencies", "output_lens", "errors"):
            value[name].reverse()

    assert read_result(altered(VLLM, tmp_path / "r", turn)).requests == read_result(VLLM).requests


def test_requests_that_are_not_plain_are_left_out(tmp_path: Path) -> None:
    def recount(value: Any) -> None:
        value["completed"] = 25

    found = read_result(altered(VLLM, tmp_path / "r", recount))
    assert found.requests is None
    assert any("do not agree" in note for note in found.notes)


@pytest.mark.parametrize(
    "change",
    [
        lambda v: v.update(ttfts=[1000 * t for t in v["ttfts"]]),
        lambda v: v.update(latencies=[1000 * t for t in v["latencies"]]),
        lambda v: v.update(p50_ttft_ms=10 * v["p50_ttft_ms"]),
        lambda v: v["ttfts"].__setitem__(0, v["latencies"][0] + 1),
    ],
    ids=["TTFT in ms", "E2E in ms", "another median", "TTFT beyond E2E"],
)
def test_single_requests_of_another_unit_than_the_summary_are_left_out(change: Any, tmp_path: Path) -> None:
    found = read_result(altered(VLLM, tmp_path / "r", change))
    assert found.requests is None
    assert any("do not agree" in note for note in found.notes)


def test_guidellm_is_what_its_own_requests_say() -> None:
    raw, found = loaded(GUIDELLM), read_result(GUIDELLM)
    requests = raw["benchmarks"][0]["requests"]["successful"]
    assert (found.tool, found.version, found.load) == ("guidellm", "0.8.1", "20 req/s, constant")
    assert (found.completed, found.failed) == (len(requests), 2) == (10, 2)
    assert found.requests_per_s == pytest.approx(10 / found.duration_s)
    tokens = np.array([r["output_tokens"] for r in requests])
    assert len(set(tokens)) > 3
    assert found.output_tokens_per_s == pytest.approx(tokens.sum() / found.duration_s)
    ttft = np.array([r["time_to_first_token_ms"] for r in requests])
    end_to_end = 1000 * np.array([r["request_end_time"] - r["request_start_time"] for r in requests])
    pace = np.array([r["inter_token_latency_ms"] for r in requests])
    # What it calls time per output token is longer by its share of the first one's time.
    own = np.array([r["time_per_output_token_ms"] for r in requests])
    assert own * tokens == pytest.approx(ttft + pace * (tokens - 1))
    one = np.ones(len(requests))
    assert found.latencies_ms["ttft_ms"] == seen(ttft, one)
    assert found.latencies_ms["tpot_ms"] == seen(pace, tokens - 1)
    assert found.latencies_ms["itl_ms"] == NOTHING
    assert found.latencies_ms["e2e_ms"] == seen([1000 * r["request_latency"] for r in requests], one)
    assert found.requests is not None
    assert found.requests.e2e_ms == pytest.approx(end_to_end)
    # Its percentiles count an answer once for each of its gaps: an interval of answers would be of another number.
    assert found.requests.tpot_ms == ()
    assert found.requests.itl_ms == ()


def test_answers_in_one_piece_have_no_first_token() -> None:
    """guidellm writes 0 for every gap of theirs."""
    raw = loaded(TWO_LOADS)["benchmarks"][0]["metrics"]["inter_token_latency_ms"]["successful"]
    assert (raw["count"], raw["percentiles"]["p50"]) == (41, 0.0)
    for found in read_results(TWO_LOADS):
        assert found.latencies_ms["ttft_ms"] == found.latencies_ms["tpot_ms"] == NOTHING
        assert found.latencies_ms["e2e_ms"]["p50"] == pytest.approx(20, rel=0.2)
        assert found.requests is not None
        assert found.requests == SingleRequests(e2e_ms=found.requests.e2e_ms)


def test_several_loads_in_a_file_are_several_results() -> None:
    assert [found.load for found in read_results(TWO_LOADS)] == ["1 at once", "2 at once"]


def test_appended_results_are_several(tmp_path: Path) -> None:
    both = tmp_path / "both.json"
    both.write_text(f"{VLLM.read_text().strip()}\n{PLAIN.read_text().strip()}")
    assert read_results(both) == (read_result(VLLM), read_result(PLAIN))


@pytest.mark.parametrize(("folder", "failed"), [(FAILURES, 2), (WELL, 0)])
def test_aiperf_is_what_its_own_requests_say(folder: Path, failed: int) -> None:
    records = [json.loads(line) for line in (folder / RECORDS).read_text().splitlines()]
    good = [r["metrics"] for r in records if "error" not in r]
    found = read_result(folder / AIPERF)
    assert (found.tool, found.version, found.load) == ("aiperf", "0.13.0", "20 req/s, constant")
    assert (found.completed, found.failed) == (len(good), failed)
    names = {"ttft_ms": "time_to_first_token", "tpot_ms": "inter_token_latency", "e2e_ms": "request_latency"}
    for ours, theirs in names.items():
        assert {m[theirs]["unit"] for m in good} == {"ms"}
        assert found.latencies_ms[ours] == percentiles([m[theirs]["value"] for m in good])
    gaps = [m["inter_chunk_latency"]["value"] for m in good]
    assert found.latencies_ms["itl_ms"] == percentiles(np.concatenate(gaps))
    for m, own in zip(good, gaps, strict=True):
        pace = (m["request_latency"]["value"] - m["time_to_first_token"]["value"]) / (
            m["output_sequence_length"]["value"] - 1
        )
        assert m["inter_token_latency"]["value"] == pytest.approx(pace)
        assert sum(own) == pytest.approx(m["request_latency"]["value"] - m["time_to_first_token"]["value"])
    assert found.requests is not None
    assert sorted(found.requests.itl_ms) == sorted(tuple(own) for own in gaps)
    tokens = sum(m["output_sequence_length"]["value"] for m in good)
    # The phase, which is longer than what it calls its duration.
    phase_s = found.completed / found.requests_per_s
    assert found.output_tokens_per_s == pytest.approx(tokens / phase_s)
    starts, ends = ([r["metadata"][k] for r in records] for k in ("request_start_ns", "request_end_ns"))
    assert found.duration_s == pytest.approx((max(ends) - min(starts)) / 1e9, rel=1e-5)
    assert any(f"divide by {phase_s:.3f} s" in note for note in found.notes)


def test_single_requests_of_aiperf_are_read_by_themselves(tmp_path: Path) -> None:
    alone = read_result(FAILURES / RECORDS)
    assert (alone.completed, alone.failed, alone.requests_per_s, alone.duration_s) == (10, 2, None, None)
    assert all(p == NOTHING for p in alone.latencies_ms.values())
    assert alone.requests == read_result(FAILURES / AIPERF).requests
    # Those of another run are not taken, and none is missed.
    shutil.copy(FAILURES / AIPERF, tmp_path)
    assert read_result(tmp_path / AIPERF).requests is None
    shutil.copy(WELL / RECORDS, tmp_path)
    assert read_result(tmp_path / AIPERF).requests is None


def test_units_of_aiperf_are_heeded(tmp_path: Path) -> None:
    def in_seconds(value: Any) -> None:
        value["time_to_first_token"].update(unit="sec", p50=0.25)

    def in_weeks(value: Any) -> None:
        value["time_to_first_token"]["unit"] = "weeks"

    found = read_result(altered(WELL / AIPERF, tmp_path / "r", in_seconds))
    assert found.latencies_ms["ttft_ms"]["p50"] == 250
    with pytest.raises(ConfigError, match="time_to_first_token is in 'weeks'"):
        read_result(altered(WELL / AIPERF, tmp_path / "r", in_weeks))


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("", "holds nothing"),
        ("hello", "no JSON object"),
        ("[1]", "no JSON object"),
        ('{\n "a": 1,\n', "no JSON object .*truncated"),
        ('{"a": 1}', r"no tool that is known; it has the keys 'a'\. Known are vllm bench serve .* guidellm .* aiperf"),
        ('{"metadata": {}, "benchmarks": []}', "without a benchmark"),
        ('{"metadata": {}, "benchmarks": [{}]}', r"not of the form that its tool writes: .*`metrics` - at `\$.benchmarks\[0\]`"),
        ('{"metadata": {"request_start_ns": 1}, "metrics": {}}\n{"metadata": {}, "metrics": {}}', "line 2: not of the form"),
        ('{"metadata": {}, "metrics": {}}\n{"meta', "line 2: no JSON object"),
    ],
)  # fmt: skip
def test_what_is_no_result_is_named(tmp_path: Path, content: str, what: str) -> None:
    path = tmp_path / "r.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match=what) as caught:
        read_result(path)
    assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        ("p90_ttft_ms", "x", "p90_ttft_ms: not of the form .*got `str`"),
        ("p90_ttft_ms", -1.0, "p90_ttft_ms: not of the form .*>= 0"),
        ("duration", None, r"at `\$.duration`"),
        ("ttfts", [1.0, "x"], r"at `\$.ttfts\[1\]`"),
        ("itls", [[0.1]], "itls has 1 values, ttfts has 30"),
    ],
)
def test_a_member_of_another_form_is_named(tmp_path: Path, name: str, value: Any, what: str) -> None:
    path = altered(VLLM, tmp_path / "r", lambda whole: whole.__setitem__(name, value))
    with pytest.raises(ConfigError, match=what):
        read_result(path)


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    for name, what in (("none", "no such file"), (".", "no regular file"), ("a\0b", "null")):
        with pytest.raises(ConfigError, match=what):
            read_result(tmp_path / name)


ALL = [VLLM, PLAIN, GUIDELLM, FAILURES / AIPERF, FAILURES / RECORDS]
CONTENTS = [path.read_bytes() for path in ALL]


@st.composite
def mutilated(draw: st.DrawFn) -> bytes:
    """A real file, whole or cut off, with bytes put in place of others."""
    content = bytearray(draw(st.sampled_from(CONTENTS)))
    if draw(st.booleans()):
        del content[draw(st.integers(0, len(content))) :]
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(content)))
        put = st.binary(max_size=4) | st.sampled_from(
            [b"null", b"-1", b"1e999", b"\\ud800", b"[" * 9999, b"{}", b'""']
        )
        content[at : at + draw(st.integers(0, 9))] = draw(put)
    return bytes(content)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(max_size=200) | mutilated())
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "r.json")
        path.write_bytes(content)
        try:
            read_results(path)
        except ConfigError as error:
            assert str(error).startswith(str(path))


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from([VLLM, GUIDELLM, FAILURES / AIPERF]), st.data())
def test_any_value_in_place_of_another_is_read_or_refused(source: Path, data: st.DataObject) -> None:
    """Also where the JSON is whole."""
    whole = part = loaded(source)
    while True:
        key = data.draw(st.sampled_from(sorted(part) if isinstance(part, dict) else range(len(part))))
        if not isinstance(part[key], dict | list) or not part[key] or data.draw(st.booleans()):
            break
        part = part[key]
    part[key] = data.draw(
        st.sampled_from([None, -1, 0, 7, 1e300, "x", [], {}, [None], [[1]], {"a": 1}, True, 2**70])
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "r.json")
        path.write_text(json.dumps(whole))
        try:
            read_results(path)
        except ConfigError as error:
            assert str(error).startswith(str(path))


def test_numbers_that_are_none_in_json_are_read_as_unknown(tmp_path: Path) -> None:
    """``vllm bench serve --burstiness inf`` writes Infinity, as Python's json module does."""
    whole = json.loads((SAMPLES / "vllm_plain.json").read_text())
    path = tmp_path / "theirs.json"
    path.write_text(json.dumps(whole | {"burstiness": float("inf"), "mean_itl_ms": float("nan")}))
    assert "Infinity" in path.read_text()
    assert read_result(path) == read_result(SAMPLES / "vllm_plain.json")
    path.write_text("\n".join([path.read_text()] * 2))
    assert len(read_results(path)) == 2


def test_a_byte_order_mark_is_no_fault(tmp_path: Path) -> None:
    marked = tmp_path / "marked.json"
    marked.write_bytes(b"\xef\xbb\xbf" + VLLM.read_bytes())
    assert read_result(marked).completed == 26


def own_result(folder: Path, *cells: LoadCell) -> Path:
    summary = Summary(
        version="1", started_utc="", base_url="", model="m", api="", nonce=0, workers=1, cells=cells
    )
    write_json(folder / "summary.json", summary)
    return folder / "summary.json"


def test_intervals_of_our_own_results_are_those_of_their_file(tmp_path: Path) -> None:
    """Also where requests failed, and of ITL; and none where the file has none, with the reason."""
    requests = [record(k, k * 0.1, e2e_s=0.1 + k % 7 / 100) for k in range(100)]
    requests[3] = failed(3, 0.3)
    spec, batch = spec_of(), spec_of(arrival="offline", num_requests=100, rate_per_s=0.0)
    cell, offline = (
        result_of(s, outcome_of(s, requests), percentiles=(50.0, 90.0), limits=(), hits=None)
        for s in (spec, batch)
    )
    table = compare_files([own_result(tmp_path, cell, offline)])
    row = next(line for line in table.splitlines() if line.startswith("E2E p50, ms"))
    assert level_text(cell.latencies["e2e_ms"]["p50"]) in row and row.count("[") == 1
    assert "offline100_8x4, no interval or an open one: requests of one offline batch wait" in table


def test_our_own_result_without_a_cell_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no cell"):
        compare_files([own_result(tmp_path)])


def test_words_of_a_strangers_file_move_no_cursor(tmp_path: Path) -> None:
    path = altered(VLLM, tmp_path / "v.json", lambda v: v.update(request_rate="1\x1b[2J\n" + "9" * 500))
    said = compare_files([path])
    assert "\x1b" not in said and max(map(len, said.splitlines())) < 400
    assert said.splitlines()[1].startswith("load")


def test_what_a_run_said_of_its_own_cell_stands_below_the_table(tmp_path: Path) -> None:
    """Of which file, since two runs have cells of one name."""
    well = [record(k, k * 0.1) for k in range(100)]
    late = [record(k, k * 0.1, e2e_s=0.1, late_s=0.05, resends=k % 2) for k in range(100)]
    paths = []
    for name, requests in (("a", well), ("b", late)):
        (tmp_path / name).mkdir()
        outcome = outcome_of(spec_of(), requests)
        cell = result_of(spec_of(), outcome, percentiles=(50.0, 90.0), limits=(), hits=None)
        paths.append(own_result(tmp_path / name, cell))
    said = compare_files(paths).splitlines()
    assert [line.partition("r10_8x4: ")[2][:6] for line in said if str(paths[0]) in line] == ["no ITL"]
    assert f"{paths[1]}, r10_8x4: flagged client_limited, resends" in said
    assert [line for line in said if f"{paths[1]}, r10_8x4: 50 of 100 requests were sent again" in line]
    assert [line for line in said if line.startswith(f"{paths[1]}, r10_8x4: client late: its own lateness")]


@pytest.mark.parametrize("sample", [GUIDELLM, WELL / AIPERF], ids=["guidellm", "aiperf"])
def test_each_result_of_a_file_with_several_is_read(sample: Path, tmp_path: Path) -> None:
    both = tmp_path / "both.json"
    both.write_text(f"{json.dumps(loaded(sample))}\n{json.dumps(loaded(sample))}\n")
    one, other = read_results(both)
    assert one == other and one.latencies_ms == read_result(sample).latencies_ms


@pytest.mark.parametrize("factor", [5.0, 0.2, 1.5])
def test_single_requests_of_another_run_of_aiperf_are_left_out(tmp_path: Path, factor: float) -> None:
    """Also where their range holds the summary's percentiles: intervals of others would stand beside them."""
    shutil.copy(WELL / AIPERF, tmp_path / AIPERF)
    lines = [json.loads(line) for line in (WELL / RECORDS).read_text().splitlines()]
    for line in lines:
        for metric in line["metrics"].values():
            if metric["unit"] in ("ms", "ns", "us") and not isinstance(metric["value"], list):
                metric["value"] *= factor
    (tmp_path / RECORDS).write_text("\n".join(map(json.dumps, lines)))
    found = read_result(tmp_path / AIPERF)
    assert found.requests is None
    assert sum("do not agree" in note for note in found.notes) == 1
    assert "[" not in compare_files([tmp_path / AIPERF]).split("\n\n")[0]


@pytest.mark.parametrize(("factor", "kept"), [(5.0, False), (0.2, False), (1.5, False), (1.0, True)])
def test_single_requests_of_another_run_of_guidellm_are_left_out(
    tmp_path: Path, factor: float, kept: bool
) -> None:
    def slower(value: Any) -> None:
        for request in value["benchmarks"][0]["requests"]["successful"]:
            request["time_to_first_token_ms"] *= factor
            request["request_latency"] *= factor

    found = read_result(altered(GUIDELLM, tmp_path / "r", slower))
    assert (found.requests is not None) == kept
    assert any("do not agree" in note for note in found.notes) != kept


def test_a_sample_of_guidellm_need_not_hold_the_ends(tmp_path: Path) -> None:
    def few(value: Any) -> None:
        requests = value["benchmarks"][0]["requests"]
        requests["successful"] = sorted(requests["successful"], key=lambda r: r["request_latency"])[:-2]

    found = read_result(altered(GUIDELLM, tmp_path / "r", few))
    assert found.requests is not None
    assert any("are a sample of" in note for note in found.notes)
