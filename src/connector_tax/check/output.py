"""A check as text, Markdown and JUnit: numbers here, words in the templates beside."""

from functools import cache, partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET  # nosec B405  # it writes XML, and parses none

import msgspec

from connector_tax.base.documents.aggregate import Interval
from connector_tax.base.templates import template
from connector_tax.check.campaign import AGAIN
from connector_tax.check.document import Check
from connector_tax.read.figures.words import percent, signed, with_interval
from connector_tax.virtual_time import Interval as Estimated

TEMPLATES = Path(__file__).parent
# Hooks below it are in the JSON alone.
LEAST_US = 0.5


def text_of(part: str, value: Any) -> str:
    """Return a part of the check as lines: ``about``, ``loads``, ``launched``, ``switched``,
    ``virtual_time``, ``growth``, ``real_time`` or ``verdict``."""
    lines = str(getattr(_module("check.txt.j2"), part)(value)).splitlines()
    return "\n".join(line for line in lines if line.strip())


def markdown_of(check: Check) -> str:
    return template(TEMPLATES / "check.md.j2").render(c=check, **_helpers())


def junit_of(check: Check) -> str:
    """Return a case for each question that was reached; the last one fails with the verdict's words."""
    found, code = check.found, check.verdict.code
    serving = found.launched is not None or found.real_time is not None
    reached = {
        "loads": serving or found.fault is not None,
        "serves": serving,
        "tax": code not in ("not_loaded", "not_served"),
    }
    suite = ET.Element("testsuite", name="connector-tax check", time=f"{check.elapsed_s:.1f}")
    for name in (name for name, asked in reached.items() if asked):
        case = ET.SubElement(suite, "testcase", classname=check.connector.label, name=name)
    faults = {"failures": code in ("not_loaded", "not_served", "above"), "errors": code == "not_judged"}
    for kind, is_so in faults.items():
        suite.set(kind, str(int(is_so)))
        if is_so:
            ET.SubElement(case, kind.removesuffix("s"), message=text_of("verdict", check.verdict))
    suite.set("tests", str(len(suite)))
    ET.indent(suite)
    return ET.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


@cache
def _module(name: str) -> Any:
    return template(TEMPLATES / name).make_module(_helpers())


def _helpers() -> dict[str, Any]:
    units = {unit: partial(_with, unit=unit) for unit in ("ratio", "us")}
    words = template(TEMPLATES / "words.j2").make_module({**units, "percent": percent})
    return {
        "again": AGAIN,
        "least_us": LEAST_US,
        **units,
        "plain_us": _plain_us,
        "words": words,
    }


def _with(value: Any, *, unit: str) -> str:
    """With its interval, where there is one."""
    if value.point is None:
        return "-"
    if value.low is None and value.high is None:
        return signed([value.point], unit)[0]
    return with_interval(Interval(value.point, value.low, value.high), unit)


def _plain_us(value: Estimated) -> str:
    """Without a sign: of an amount, not of a difference."""
    if value.point is None:
        return "-"
    ends = "" if value.low is None or value.high is None else f" [{value.low:.1f}, {value.high:.1f}]"
    return f"{value.point:.1f} µs{ends}"


def json_of(check: Check) -> str:
    return msgspec.json.format(msgspec.json.encode(check), indent=2).decode()
