"""The command line of ``connector-tax load``: what cannot be a load is refused in one line, before any server is asked."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
from cell_specs import cell_spec

from connector_tax.base.documents.load import Level
from connector_tax.base.errors import ConfigError
from connector_tax.base.records.cell import CellSpec, Shape
from connector_tax.base.records.sessions import read_sessions
from connector_tax.cli import command
from connector_tax.load.find_rate import chosen_by
from connector_tax.load.plan import Content, Load, Sweep, cells_of, contents_of, load_of
from connector_tax.load.sources import write_trace
from connector_tax.run.workload.schedulers import Due, SessionScheduler, Share


def asked(tmp_path: Path, *arguments: str, url: str = "http://127.0.0.1:1") -> Load:
    parser = command("load").parser("connector-tax load")
    return load_of(parser.parse_args(["--base-url", url, "--out", str(tmp_path), *arguments]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rate", "1e300"], "from 1e-06 to 100,000"),
        (["--rates", ""], "give numbers separated by commas"),
        (["--rates", "1,1"], "stands there twice"),
        (["--rate", "5", "--client-key", "k.pem"], "--client-cert is missing beside --client-key."),
        (
            ["--rate", "5", "--precision", "1%"],
            r"--find-rate or a sweep \(no --rates\) is missing beside --precision\.",
        ),
        (["--rate", "5", "--keep-failed-sessions"], "--sessions is missing beside --keep-failed-sessions."),
        (["--shapes", "8x4,16x4"], r"a sweep \(no --rates\) does not go with --shapes"),
        (["--ramp-from", "2", "--ramp-up", "3"], "--rates or --interval is missing beside --ramp-from"),
        (["--find-rate", "1:1e9", "--slo", "ttft_p90=1s"], "give LOW:HIGH"),
        (["--find-rate", "1:2"], "--slo is missing beside --find-rate"),
        (
            ["--find-rate", "1:2", "--slo", "e2e_p90=1s", "--shapes", "8x4,16x4"],
            "one shape, given as --shape",
        ),
        (["--find-rate", "1:2", "--slo", ""], "slo"),
        (["--rate", "5", "--goodput", ""], "goodput"),
        (["--rate", "5", "--shapes", "10x2,10x2"], "are the same load"),
        (["--rate", "5", "--shapes", "10x2,10x4", "--output-length", "30"], "are the same load"),
        (["--rate", "5", "--shape", f"{10**30},2"], "INPUTxOUTPUT"),
        (["--rate", "5", "--shape", "100000001,2"], "from 1 to 10,000,000"),
        (["--rate", "5", "--token-ids", "1," + "9" * 5001], "token-ids"),
        (["--rate", "5", "--extra-body", '{"temperature": 1e999}'], "--extra-body: not JSON"),
        (["--rate", "5", "--extra-body", '{"a":' * 100_000], "--extra-body: not JSON"),
        (["--rate", "5", "--ca-file", "/etc/passwd"], "https in --base-url is missing beside --ca-file"),
        (
            ["--trace", "t.csv", "--duration", "5"],
            "--trace does not go with --duration: .*--max-seconds bounds it",
        ),
        (
            ["--rate", "5", "--num-prompts", "5", "--min-completed", "5"],
            "--num-prompts does not go with --min-completed",
        ),
        (["--offline", "--num-prompts", "5", "--warmup", "3"], "--warmup"),
    ],
)
def test_what_is_no_load_is_one_message(tmp_path: Path, arguments: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        asked(tmp_path, *arguments)


def test_rates_and_shapes_are_read_alike_by_either_name(tmp_path: Path) -> None:
    nonce = ("--nonce", "1")
    assert asked(tmp_path, "--rate", "4,8", *nonce) == asked(tmp_path, "--rates", "4,8", *nonce)
    one = asked(tmp_path, "--rate", "4", "--shape", "16,2", *nonce)
    assert one == asked(tmp_path, "--rate", "4", "--shapes", "16x2", *nonce)
    assert len(asked(tmp_path, "--rate", "4", "--shape", "16x2,16x4").shapes) == 2


def test_a_server_alone_is_swept_into_a_folder_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    parser = command("load").parser("connector-tax load")
    (tmp_path / "load-1").mkdir()
    load = load_of(parser.parse_args(["--target", "http://127.0.0.1:1"]))
    assert load.out == Path("load-2") and load.shapes == (Shape(4096, 256),)
    assert load.sweep is not None and load.sweep.low_per_s == 0
    with pytest.raises(ConfigError, match=r"--base-url .* is missing. Give .* or --demo"):
        load_of(parser.parse_args([]))


@pytest.mark.parametrize(
    ("per_s", "answer_ms", "given", "rate", "warmup_s", "duration_s"),
    [
        (42.0, 400.0, (None, None), 10.0, 2.0, 10.0),
        (4.1, 4_000.0, (None, None), 1.0, 4.0, 12.0),
        (0.01, 900_000.0, (None, None), 0.0025, 30.0, 60.0),
        (42.0, 400.0, (0.0, 3.0), 10.0, 0.0, 3.0),
        (0.0, None, (None, None), 0.0, 2.0, 10.0),
    ],
)
def test_what_the_server_does_at_first_chooses_rates_and_times(
    per_s: float,
    answer_ms: float | None,
    given: tuple[float | None, float | None],
    rate: float,
    warmup_s: float,
    duration_s: float,
) -> None:
    probe = SimpleNamespace(
        throughput=SimpleNamespace(requests_per_s=per_s),
        latencies={"e2e_ms": {"p50": Level(answer_ms)}},
        spec=SimpleNamespace(concurrency=16),
    )
    content = Content(cell_spec(min_completed=200), 64.0)
    sweep, chosen = chosen_by(probe, Sweep(0.0, 1e5, 0.25, *given), content)  # type: ignore[arg-type]
    assert (sweep.low_per_s, sweep.high_per_s) == (pytest.approx(rate), 1e5)
    spec = chosen.spec
    assert (spec.warmup_s, spec.duration_s, spec.min_completed) == (warmup_s, duration_s, 0)


def test_a_fixed_interval_is_a_rate(tmp_path: Path) -> None:
    """Of requests, and of sessions."""
    nonce = ("--nonce", "1")
    assert asked(tmp_path, "--interval", "0.1", *nonce) == asked(tmp_path, "--rate", "10", *nonce)
    assert asked(tmp_path, "--interval", "0.3").rates_per_s == (1 / 0.3,)
    assert asked(tmp_path, "--interval", "2", "--sessions", "s.jsonl").rates_per_s == (0.5,)
    for refused in (("0",), ("soon",), ("1", "--rate", "4")):
        with pytest.raises(SystemExit):
            asked(tmp_path, "--interval", *refused)


HUGE = str(10**400)


@pytest.mark.parametrize(
    "arguments",
    [
        *(["--rate", "5", f"--{name}", "1e300"] for name in ("max-seconds", "duration")),
        *(["--rate", "5", f"--{name}", HUGE] for name in ("seed", "num-prompts")),
        ["--rate", "5", "--ramp-up", "2", "--ramp-from", "1e-300"],
        ["--rate", "5", "--arrival", "gamma", "--gamma-shape", "1e-300"],
        ["--rate", "5", "--workers", "100000"],
        ["--rate", "5", "--top-p", "7"],
        ["--rate", "5", "--duration", "nan"],
        ["--trace", "t.csv", "--speed", "1e300"],
        ["--trace", "t.csv", "--speed", "0"],
        ["--find-rate", "1:9", "--precision", "0.0001"],
    ],
)  # fmt: skip
def test_a_value_that_nothing_can_be_measured_with_is_refused_by_its_option(
    tmp_path: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        asked(tmp_path, *arguments)
    said = capsys.readouterr().err.splitlines()[-1]
    assert ended.value.code == 2
    assert said.startswith(f"error: argument {arguments[-2]}") and "it has to be" in said


def test_a_certificate_file_is_taken_with_https_however_it_is_written(tmp_path: Path) -> None:
    assert (
        asked(tmp_path, "--rate", "5", "--ca-file", "ca.pem", url="HTTPS://host").target.ca_file == "ca.pem"
    )


def session(arrival_s: float | None, *tokens: int) -> dict[str, Any]:
    turns = [
        {"new_tokens": n, "output_tokens": 2, **({"after": [k - 1], "history": k - 1} if k else {})}
        for k, n in enumerate(tokens)
    ]
    return {"turns": turns} if arrival_s is None else {"turns": turns, "arrival_s": arrival_s}


def written(path: Path, *sessions: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(s) + "\n" for s in sessions))
    return path


@pytest.mark.parametrize("load", [["--rate", "50"], ["--find-rate", "1:9", "--slo", "ttft_p90=1s"]])
def test_no_rate_applies_to_sessions_with_times_of_their_own(tmp_path: Path, load: list[str]) -> None:
    path = written(tmp_path / "s.jsonl", session(0.0, 4), session(0.1, 4))
    with pytest.raises(ConfigError, match=r"have times of their own.*Give it as --trace"):
        contents_of(asked(tmp_path, *load, "--sessions", str(path)))


def test_conversations_with_times_are_a_trace_that_can_be_sped_up(tmp_path: Path) -> None:
    source = written(tmp_path / "s.jsonl", session(14.0, 4, 3), session(10.0, 5), session(12.0, 6))
    assert write_trace(source, tmp_path / "into.jsonl", speed=2.0) == 3
    found = read_sessions(tmp_path / "into.jsonl")
    assert [s.arrival_s for s in found] == [0.0, 1.0, 2.0]
    assert [len(s.turns) for s in found] == [1, 1, 2] and found[2].turns[1].history == (0,)


def test_a_trace_has_no_rate_for_a_name(tmp_path: Path) -> None:
    source = written(tmp_path / "s.jsonl", session(0.0, 4), session(0.5, 5))
    load = asked(tmp_path, "--trace", str(source))
    ((spec, _, trace_per_s),) = cells_of(load, contents_of(load), load.spec.asked)
    assert spec.cell_id.startswith("trace_s") and spec.rate_per_s == 0
    assert (spec.num_requests, trace_per_s) == (2, 4.0)
    assert [due.offset_ns for due in due_of(spec)] == [0, 500_000_000]


def due_of(spec: CellSpec) -> list[Due]:
    scheduler = SessionScheduler(spec, Share(), read_sessions(Path(str(spec.sessions))))
    found = []
    while scheduler.next_due_ns() is not None:
        found.append(scheduler.take())
    return found


def test_sessions_of_which_some_have_no_time_are_no_trace(tmp_path: Path) -> None:
    source = written(tmp_path / "s.jsonl", session(0.0, 4), session(None, 5))
    with pytest.raises(ConfigError, match="line 2: no arrival_s, so it is no trace"):
        write_trace(source, tmp_path / "into.jsonl", speed=1.0)
