"""How much a tax grew since the main branch's check: what is compared, what is refused, and what decides."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from made import interval, request, virtual_time

from connector_tax.base.errors import ArtifactError, ConfigError
from connector_tax.check import command
from connector_tax.check.command import json_of, markdown_of, text_of
from connector_tax.check.document import Check, Connector, Found, Growth, Host, Launched
from connector_tax.check.verdict import FOUR_IN_FIVE, growth_of, judge, read_baseline, refuse_another
from connector_tax.commands.check import COMMAND
from connector_tax.virtual_time import Bounds, VirtualTime

SERVES = Launched(None, answered=16, sent=16, versions={"vllm": "0.32.0"})


def check(folder: Path, *measured: VirtualTime, **more: Any) -> Check:
    asked = request(folder)
    found = Found(launched=SERVES, virtual_time=measured)
    return Check(
        verdict=judge(asked, found, None),
        connector=Connector("checked", "no-op", asked.kv_transfer_config, ()),
        python="/bin/true",
        model="Qwen",
        gpu="h200",
        host=Host(2, 0.1, None),
        found=found,
        elapsed_s=60.0,
        **more,
    )


def at(step_us: float, plain_us: float = 140.0, half: float = 3.0) -> VirtualTime:
    """A connector whose step takes so much more than plain's."""
    step = interval(step_us, half)
    plain = {"plain": interval(plain_us, 1.0), "connector": interval(plain_us + step_us, 1.0)}
    return msgspec.structs.replace(virtual_time(), step_us=Bounds(step, step), engine_us_per_step=plain)


def grown(folder: Path, then: VirtualTime, now: VirtualTime) -> dict[str, Growth]:
    return {g.metric: g for g in growth_of(check(folder, then), now)}


def test_a_difference_of_two_checks_has_both_their_uncertainties(tmp_path: Path) -> None:
    """Two means of half-width 3 and 4 differ with one of 5."""
    step = grown(tmp_path, at(35.0, half=3.0), at(50.0, half=4.0))["step"]
    assert (step.us.point, step.us.low, step.us.high) == (15.0, pytest.approx(10.0), pytest.approx(20.0))
    assert step.seen == "grew" and step.could_see_us == pytest.approx(5 * FOUR_IN_FIVE)
    assert grown(tmp_path, at(50.0), at(35.0))["step"].seen == "shrank"
    same = grown(tmp_path, at(35.0, half=3.0), at(36.0, half=4.0))["step"]
    assert same.seen == "no_change"
    assert "no change seen: +1.0 µs [−4.0 µs, +6.0 µs]; " in (said := text_of("growth", (same,)))
    assert "of plain's (could see 7.1 µs)" in said


def test_a_slower_host_is_no_growth(tmp_path: Path) -> None:
    """Where plain's step takes a half more, a connector's that does the same work takes a half more, too."""
    slower = grown(tmp_path, at(40.0, 140.0), at(60.0, 210.0))["step"]
    assert slower.us.point == 20.0 and slower.seen == "no_change"
    assert "Plain's step took +50 % CPU" in text_of("growth", (slower,))
    assert grown(tmp_path, at(40.0, 140.0), at(60.0, 141.0))["step"].seen == "grew"


def test_one_start_has_no_interval_and_nothing_is_known(tmp_path: Path) -> None:
    one = grown(tmp_path, virtual_time(half=None), virtual_time())["tpot_p50"]
    assert (one.seen, one.us.low, one.could_see_us) == ("not_known", None, None)
    assert "seen" not in text_of("growth", (one,))


@pytest.mark.parametrize(
    ("key", "now"),
    [
        ("connector.kv_transfer_config", {"kv_connector": "Other"}),
        ("engine_args", {"max_num_seqs": 8}),
        ("versions.vllm", "0.31.0"),
    ],
)
def test_another_connector_release_or_engine_is_refused_by_its_key(
    tmp_path: Path, key: str, now: Any
) -> None:
    with pytest.raises(ConfigError, match=rf"^--baseline: {key} is .+ there and .+ here\.[^\n]+$"):
        refuse_another(check(tmp_path, virtual_time()), {key: now})


@pytest.mark.parametrize(
    ("key", "changes"),
    [
        ("scheduling", {"scheduling": "sync"}),
        ("requests of a start", {"requests": 300}),
    ],
)
def test_another_load_is_refused_by_its_key(tmp_path: Path, key: str, changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"--baseline: {key} is "):
        grown(tmp_path, virtual_time(), msgspec.structs.replace(virtual_time(), **changes))


def test_cpu_of_a_step_decides_where_it_is_asked_for(tmp_path: Path) -> None:
    """A device hides it from every latency, so it is judged by itself, in per cent of plain's."""
    baseline, now = check(tmp_path, at(50.0)), at(90.0)
    grown_by = Found(launched=SERVES, virtual_time=(now,), growth=tuple(growth_of(baseline, now)))
    asked = {"limit": 0.2, "metrics": ("step",)}
    verdict = judge(request(tmp_path, baseline=baseline, **asked), grown_by, None)
    plain_us = now.engine_us_per_step["plain"].point
    assert verdict.worst is not None and verdict.worst.point == pytest.approx(40.0 / plain_us)
    assert verdict.exit_code == 1 and "CPU of a step" in text_of("verdict", verdict)
    tax = judge(request(tmp_path, **asked), Found(launched=SERVES, virtual_time=(now,)), None)
    assert tax.worst is not None and tax.worst.point == pytest.approx(90.0 / plain_us)
    assert judge(request(tmp_path, limit=0.2, baseline=baseline), grown_by, None).exit_code == 0


def test_a_baseline_without_a_tax_is_refused_with_its_verdict(tmp_path: Path) -> None:
    path = tmp_path / "main.json"
    path.write_text(json_of(check(tmp_path)))
    with pytest.raises(ConfigError, match=r"main\.json: has no tax in virtual time .verdict not_judged"):
        read_baseline(path)
    path.write_text('{"schema": 1}')
    with pytest.raises(ArtifactError, match=r"main\.json: schema 1"):
        read_baseline(path)


def test_with_a_baseline_the_limit_is_of_the_growth(tmp_path: Path) -> None:
    """A tax of 10 % that was there before is nobody's fault today."""
    baseline = check(tmp_path, virtual_time(0.10))
    for tax, code, exit_code in ((0.10, "not_above", 0), (0.15, "above", 1), (0.101, "not_above", 0)):
        now = virtual_time(tax)
        found = Found(launched=SERVES, virtual_time=(now,), growth=tuple(growth_of(baseline, now)))
        verdict = judge(request(tmp_path, limit=0.02, baseline=baseline), found, None)
        assert (verdict.code, verdict.exit_code, verdict.of) == (code, exit_code, "growth")
        assert "growth since the baseline" in text_of("verdict", verdict)
    assert (
        judge(request(tmp_path, limit=0.02, baseline=baseline), Found(launched=SERVES), None).exit_code == 2
    )


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "early_fault", lambda *args: None)
    monkeypatch.setattr(command, "launch_once", lambda *args: (SERVES, ""))
    measured = (virtual_time(0.03), {}, {})
    monkeypatch.setattr(command, "_in_virtual_time", lambda *args: measured)
    monkeypatch.setattr(command, "Ending", lambda minutes: type("E", (), {"why": None, "stop": None})())


def asked(folder: Path, *more: str) -> list[str]:
    from made import NOOP, model_in

    config = ["--kv-transfer-config", NOOP, "--model-config", str(model_in(folder / "Qwen"))]
    return [*config, "--engine-python", "/bin/true", *more]


def test_the_growth_is_in_text_json_markdown_and_exit_code(
    tmp_path: Path, stages: None, capsys: pytest.CaptureFixture[str]
) -> None:
    main, summary = tmp_path / "main.json", tmp_path / "summary.md"
    main.write_text(json_of(check(tmp_path, virtual_time(0.01))))
    options = ["--baseline", str(main), "--markdown", str(summary)]
    assert COMMAND.call(asked(tmp_path, *options)) == 0
    text = capsys.readouterr().out
    assert "against the baseline, asynchronous scheduling" in text and "TPOT p90: grew by +200 µs" in text
    assert COMMAND.call(asked(tmp_path, *options, "--json", "--fail-above", "1.5%")) == 1
    found = msgspec.json.decode(capsys.readouterr().out, type=Check)
    assert {g.metric: g.seen for g in found.found.growth}["tpot_p90"] == "grew"
    words = summary.read_text()
    assert "| TPOT p90 | grew by +200 µs [" in words and "Plain's step took 0 % CPU" in words
    assert markdown_of(found) in words


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"gpu": "h100"}, "gpu"),
        ({"found": {"launched": {**msgspec.to_builtins(SERVES), "versions": {}}}}, "versions.vllm"),
    ],
)
def test_what_differs_is_refused_before_anything_is_measured(
    tmp_path: Path, stages: None, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], key: str
) -> None:
    monkeypatch.setattr(command, "_in_virtual_time", lambda *args: pytest.fail("was measured"))
    whole = json.loads(json_of(check(tmp_path, virtual_time())))
    found = {**whole["found"], **change.pop("found", {})}
    (tmp_path / "main.json").write_text(json.dumps({**whole, **change, "found": found}))
    with pytest.raises(ConfigError, match=f"--baseline: {key} is "):
        COMMAND.call(asked(tmp_path, "--baseline", str(tmp_path / "main.json")))


def test_real_time_has_no_baseline(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--baseline: .*Leave out --real-time"):
        COMMAND.call(asked(tmp_path, "--baseline", "main.json", "--real-time"))


def test_fewer_starts_are_the_same_load(tmp_path: Path) -> None:
    cut_short = msgspec.structs.replace(virtual_time(), starts=2, requests=3200)
    assert grown(tmp_path, virtual_time(), cut_short)["step"].seen == "no_change"
