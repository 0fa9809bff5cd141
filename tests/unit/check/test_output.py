"""The same check as text, as Markdown for a job's summary and as JUnit."""

import json
from xml.etree import ElementTree as ET

import msgspec
import pytest
from made import virtual_time

from connector_tax.base.documents.cell import Spinning
from connector_tax.check.command import json_of, junit_of, markdown_of, text_of
from connector_tax.check.document import (
    Check,
    Connector,
    Fault,
    Found,
    Host,
    Launched,
    Switched,
    Verdict,
)

LAUNCHED = Launched(
    None,
    answered=16,
    sent=16,
    created=("NixlConnector",),
    spinning=(Spinning(process="engine_core", thread="nixl", share=0.99),),
    versions={"vllm": "0.32.0"},
)
WHOLE = Found(
    launched=LAUNCHED,
    switched=(Switched("scheduler_config.policy", "fcfs", "priority", ("because",)),),
    virtual_time=(virtual_time(0.01, 0.02, waits="get_finished"),),
)


def check(found: Found, code: str, exit_code: int, **more: object) -> Check:
    return Check(
        verdict=Verdict(code, exit_code, 0.02, **more),  # type: ignore[arg-type]
        connector=Connector("checked", "Nixl <b>", {"kv_connector": "NixlConnector"}, ("a note",)),
        python="/venv/bin/python",
        model="Qwen",
        gpu="h200",
        host=Host(2, 3.5, 0.4),
        found=found,
        elapsed_s=61.2,
    )


def test_each_part_has_its_numbers_in_us_and_per_cent() -> None:
    words = text_of("virtual_time", WHOLE.virtual_time[0])
    assert words.startswith("tax of the engine's thread in virtual time, asynchronous scheduling (3 starts")
    for number in (
        "+1.0 % [+0.9 %, +1.1 %]",
        "+100 µs [+99 µs, +101 µs]",
        "+2.0 %",
        "139.0 µs",
        "+35 µs",
        "2.00 a step",
    ):
        assert number in words
    assert "nixl of engine_core (0.99 cores)" in text_of("launched", LAUNCHED)
    assert "made NixlConnector" in text_of("launched", LAUNCHED)
    assert text_of("switched", WHOLE.switched).splitlines()[1:] == [
        "  scheduler_config.policy: plain fcfs, connector priority",
        "    vLLM's log: because",
    ]
    assert "threads that spin while nobody asks: none" in text_of("launched", Launched(None))


def test_markdown_is_a_summary_of_a_job() -> None:
    lines = markdown_of(check(WHOLE, "not_above", 0)).splitlines()
    assert lines[0] == "### connector-tax check: Nixl <b>"
    assert "| TPOT p50 | 10.00 ms | +1.0 % [+0.9 %, +1.1 %] |" in "\n".join(lines)
    assert any("`worker/get_finished`" in line and "not in virtual time" in line for line in lines)
    assert "has no package nixl" in markdown_of(
        check(Found(fault=Fault("no_package", "nixl", "", "", "pip install nixl")), "not_loaded", 2)
    )


@pytest.mark.parametrize(
    ("found", "code", "cases", "fault"),
    [
        (WHOLE, "not_above", ["loads", "serves", "tax"], None),
        (WHOLE, "above", ["loads", "serves", "tax"], "failure"),
        (Found(launched=Launched("boom")), "not_served", ["loads", "serves"], "failure"),
        (Found(fault=Fault("no_vllm", "vllm")), "not_loaded", ["loads"], "failure"),
        (Found(), "not_judged", ["tax"], "error"),
    ],
)
def test_junit_has_a_case_for_each_question_that_was_reached(
    found: Found, code: str, cases: list[str], fault: str | None
) -> None:
    suite = ET.fromstring(junit_of(check(found, code, 1)))
    assert [case.get("name") for case in suite] == cases
    assert all(case.get("classname") == "Nixl <b>" for case in suite)
    told = [(case.get("name"), part.tag) for case in suite for part in case]
    assert told == ([] if fault is None else [(cases[-1], fault)])
    counts = {"failure": "failures", "error": "errors"}
    assert {tag: suite.get(name) for tag, name in counts.items()} == {t: str(int(t == fault)) for t in counts}


def test_the_json_reads_as_the_document_that_it_is() -> None:
    whole = check(WHOLE, "measured", 0)
    assert json.loads(json_of(whole))["schema"] == 2
    assert msgspec.json.decode(json_of(whole), type=Check) == whole
