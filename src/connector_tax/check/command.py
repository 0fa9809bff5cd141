"""Runs a check and formats its result as text, Markdown or JUnit; the words are in the templates beside."""

import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from functools import cache, partial
from pathlib import Path
from threading import Event
from types import FrameType
from typing import Any
from xml.etree import ElementTree as ET  # nosec B405  # it writes XML, and parses none

import msgspec

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.config import CampaignConfig
from connector_tax.base.documents.aggregate import Interval
from connector_tax.base.errors import ConfigError, EngineError
from connector_tax.base.secrets import masked
from connector_tax.base.templates import template
from connector_tax.check.campaign import (
    AGAIN,
    engine_spec,
    launch_once,
    measure_real_time,
    switched,
    virtual_load,
    write_campaign,
)
from connector_tax.check.document import Check, Connector, Found, Host
from connector_tax.check.request import CheckRequest, early_fault
from connector_tax.check.verdict import growth_of, judge, refuse_another
from connector_tax.read.figures.words import percent, signed, with_interval
from connector_tax.run.engine.store import own_store
from connector_tax.virtual_time import Interval as Estimated
from connector_tax.virtual_time import Load, VirtualTime, compare, measure_many

LOG = "check.log"
LAUNCH, REAL_TIME = "launch", "real-time"
# Duration of each cell: enough for a few requests, and for a tax.
LAUNCH_S, REAL_TIME_S = 1.0, 15.0
# Called with each part's name and result as it ends.
Show = Callable[[str, Any], None]
Say = Callable[[str], None]


class Ended(SystemExit):
    """SIGTERM or SIGHUP came, or the time is over; what is known is still printed."""


class Ending:
    """Ends a check early.

    Attributes:
        why: None until something ends it.
        stop: set when it is to end; during ``waited_for`` nothing else happens.
    """

    _SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)

    def __init__(self, max_minutes: float | None) -> None:
        self.why: str | None = None
        self.stop = Event()
        self.waited_for = False
        for signum in self._SIGNALS:
            if signal.getsignal(signum) != signal.SIG_IGN:  # as SIGHUP is under nohup
                signal.signal(signum, self._end)
        if max_minutes is not None:
            signal.setitimer(signal.ITIMER_REAL, 60 * max_minutes)

    def _end(self, signum: int, frame: FrameType | None) -> None:
        # A second signal must not interrupt the clean-up that the first one started.
        for other in self._SIGNALS:
            signal.signal(other, signal.SIG_IGN)
        self.why = "out_of_time" if signum == signal.SIGALRM else "ended"
        self.stop.set()
        if not self.waited_for:
            raise Ended(128 + signum)


def run_check(request: CheckRequest, root: Path, ending: Ending, show: Show) -> Check:
    """Measure and judge.

    Args:
        root: an empty folder for the raw artifacts.

    Raises:
        ConfigError: the request cannot be measured, or its baseline is of something else.
    """
    begun_s = time.monotonic()
    if request.baseline is not None:
        settings = {"connector.kv_transfer_config": request.kv_transfer_config, "engine_args": request.args}
        refuse_another(request.baseline, {**settings, "model": request.model_name, "gpu": request.gpu})
    name, cell_s = (REAL_TIME, REAL_TIME_S) if request.real_time else (LAUNCH, LAUNCH_S)
    config = write_campaign(request, root, name, duration_s=cell_s)
    connector = Connector(
        request.connector_id, request.entry.label, request.kv_transfer_config, request.notes
    )
    found, host = Found(), _host()
    show("about", {"connector": connector, "model": request.model_name, "gpu": request.gpu, "host": host})

    stderr = sys.stderr  # saved, since the pipeline's output is redirected

    def say(what: str) -> None:
        print(f"{time.monotonic() - begun_s:4.0f} s  {masked(what)}", file=stderr, flush=True)

    try:
        _measure(request, config, root, found, ending, show, say)
    except Ended:
        pass
    except EngineError as error:  # from the host, plain, or an engine in virtual time
        found.problem = str(error)
    verdict = judge(request, found, ending.why)
    show("verdict", verdict)
    return Check(
        verdict=verdict,
        connector=connector,
        python=request.engine_python,
        model=request.model_name,
        gpu=request.gpu,
        engine_args=request.args,
        host=host,
        found=found,
        elapsed_s=time.monotonic() - begun_s,
    )


def _measure(
    request: CheckRequest,
    config: CampaignConfig,
    root: Path,
    found: Found,
    ending: Ending,
    show: Show,
    say: Say,
) -> None:
    """Fill ``found``, and show each part as it ends."""
    say("asking the engine's Python")
    found.fault = early_fault(request, config)
    show("loads", {"fault": found.fault, "python": request.engine_python})
    if found.fault is not None:
        return
    folder, own_id = CampaignFolder(root / config.campaign), request.connector_id
    if request.real_time:
        with _logged(root / LOG):
            found.real_time = measure_real_time(folder, config, own_id, say)
        show("real_time", found.real_time)
        return
    say("one real launch")
    with _logged(root / LOG):
        found.launched, log = launch_once(folder, own_id)
    show("launched", found.launched)
    if found.launched.failure is not None:
        return
    if request.baseline is not None:
        refuse_another(request.baseline, {"versions.vllm": found.launched.versions.get("vllm")})
    # An engine without an explicit setting resolves it, and reports it in its settings.
    is_sync = found.launched.settings.get("scheduler_config.async_scheduling") is False
    for scheduling in ("sync",) if is_sync else ("async", "sync") if request.both else ("async",):
        ending.waited_for = True
        try:
            result, plain, own = _in_virtual_time(config, own_id, scheduling, ending.stop, say)
        finally:
            ending.waited_for = False
        if not found.virtual_time:
            found.switched = switched(plain, own, log)
            show("switched", found.switched)
        found.virtual_time += (result,)
        show("virtual_time", result)
        if request.baseline is not None:
            growth = tuple(growth_of(request.baseline, result))
            found.growth += growth
            show("growth", growth)
        if ending.why is not None:
            return


def _in_virtual_time(
    config: CampaignConfig, connector_id: str, scheduling: str, stop: Event, say: Say
) -> tuple[VirtualTime, dict[str, Any], dict[str, Any]]:
    """Measure plain and the connector; return the comparison and the settings that each engine resolved.

    Raises:
        EngineError: an engine does not start or died, or nothing was known when it had to stop.
    """
    with own_store(config.connector(connector_id)) as connector:
        specs = [engine_spec(config.engine, own) for own in (config.connector("plain"), connector)]
        load = virtual_load(config, Load())
        plain, own = measure_many(specs, load, scheduling=scheduling, stop=stop, say=say)
    return compare(plain, own), plain.facts["settings"], own.facts["settings"]


@contextmanager
def _logged(path: Path) -> Iterator[None]:
    """Redirect the pipeline's output to a file."""
    with (
        open(path, "a", encoding="utf-8", errors="backslashreplace") as out,
        redirect_stdout(out),
        redirect_stderr(out),
    ):
        yield


def _host() -> Host:
    try:
        # some avg10=0.00 avg60=0.00 avg300=0.00 total=0
        pressure = Path("/proc/pressure/cpu").read_text().split()
        waited = float(pressure[1].partition("=")[2]) / 100
    except (OSError, ValueError, IndexError):
        waited = None
    return Host(len(os.sched_getaffinity(0)), os.getloadavg()[0], waited)


@contextmanager
def artifact_folder(root: Path | None) -> Iterator[Path]:
    """Yield a folder for the raw artifacts: ``root``, or a temporary one that is removed.

    Raises:
        ConfigError: ``root`` is not empty.
    """
    if root is not None and root.is_dir() and any(root.iterdir()):
        raise ConfigError(
            f"--to {root}: holds something already; a check is measured anew. Give a new folder."
        )
    context = (
        tempfile.TemporaryDirectory(prefix="connector-tax-check-") if root is None else nullcontext(root)
    )
    with context as name:
        folder = Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        yield folder


TEMPLATES = Path(__file__).parent
# Hooks below this appear in the JSON only.
LEAST_US = 0.5


def text_of(part: str, value: Any) -> str:
    """Return a part of the check as text.

    Args:
        part: ``about``, ``loads``, ``launched``, ``switched``, ``virtual_time``, ``growth``, ``real_time`` or
            ``verdict``.
    """
    lines = str(getattr(_module("check.txt.j2"), part)(value)).splitlines()
    return "\n".join(line for line in lines if line.strip())


def markdown_of(check: Check) -> str:
    return template(TEMPLATES / "check.md.j2").render(c=check, **_helpers())


def junit_of(check: Check) -> str:
    """Return a JUnit case per question that was reached; the last one fails with the verdict's text."""
    found, code = check.found, check.verdict.code
    serving = found.launched is not None or found.real_time is not None
    reached = {
        "loads": serving or found.fault is not None,
        "serves": serving,
        "tax": code not in ("not_loaded", "not_served"),
    }
    suite = ET.Element("testsuite", name="connector-tax check", time=f"{check.elapsed_s:.1f}")
    for name in (name for name, is_reached in reached.items() if is_reached):
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
    units = {unit: partial(_format_interval, unit=unit) for unit in ("ratio", "us")}
    words = template(TEMPLATES / "words.j2").make_module({**units, "percent": percent})
    return {
        "again": AGAIN,
        "least_us": LEAST_US,
        **units,
        "plain_us": _plain_us,
        "words": words,
    }


def _format_interval(value: Any, *, unit: str) -> str:
    """Format a value, with its interval if there is one."""
    if value.point is None:
        return "-"
    if value.low is None and value.high is None:
        return signed([value.point], unit)[0]
    return with_interval(Interval(value.point, value.low, value.high), unit)


def _plain_us(value: Estimated) -> str:
    """Format an amount, which has no sign, unlike a difference."""
    if value.point is None:
        return "-"
    ends = "" if value.low is None or value.high is None else f" [{value.low:.1f}, {value.high:.1f}]"
    return f"{value.point:.1f} µs{ends}"


def json_of(check: Check) -> str:
    return msgspec.json.format(msgspec.json.encode(check), indent=2).decode()
