"""Campaigns along axes: turns one YAML file into an ordinary config per campaign, measures them one after
another, and tabulates all taxes.

An entry of an axis is a set of overrides of the base campaign. Campaigns themselves refuse results of another
config, so a sweep needs no guard.
"""

import copy
import itertools
import math
import os
import re
import shlex
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, Literal

import psutil
import yaml
from msgspec import Meta

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.config import checked, parse_campaign
from connector_tax.base.config.model import CampaignConfig
from connector_tax.base.documents.aggregate import Aggregate
from connector_tax.base.documents.rates import Reference
from connector_tax.base.errors import ArtifactError, ConfigError
from connector_tax.base.files import printable, write_text_if_changed
from connector_tax.base.plan import read_campaign_file, start
from connector_tax.base.prctl import killed_with_parent
from connector_tax.base.records.bounds import Foreign, Strict, Text
from connector_tax.base.records.connector import PLAIN_AGAIN
from connector_tax.base.seeds import stream
from connector_tax.read.compare.comparison import LATENCIES, flags_at, number_of, read_side
from connector_tax.read.figures.words import (
    METRICS,
    clean,
    label,
    launches_text,
    rate,
    reference_flags,
    reference_rate,
    source_note,
    with_interval,
)
from connector_tax.read.report.status import seconds_left, worker_of

# More would take years on a GPU, and is most likely an axis too many.
MOST_CAMPAIGNS = 500
# A job ends its engine within the campaign's grace and waits for the driver to free memory, so the next
# campaign finds a free card.
MOST_ENDING_S = 300.0
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


_Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*\Z", max_length=60)]
_Axis = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_]*\Z", max_length=40)]


class EntryYaml(Strict, frozen=True, rename={"overrides": "set"}):
    """An entry of an axis.

    Attributes:
        name: part of the campaign's name.
        overrides: keys of a campaign file that replace the base's. Mappings are merged key by key, anything
            else is replaced.
    """

    name: _Name
    overrides: dict[str, Any] = {}

    def __post_init__(self) -> None:
        if "campaign" in self.overrides:
            raise ValueError(
                "set.campaign: the name of a campaign is made of the sweep's and its entries'. Leave it out"
            )


class SweepYaml(Strict, frozen=True, kw_only=True):
    """Campaigns that differ along axes, made from one base campaign. How to run and read it: docs/sweep.md.

    Attributes:
        sweep: names the folder under sweeps/; each campaign is called <sweep>-<entry of the first
            axis>-<entry of the second>-...
        base: the campaign file that all campaigns start from; relative to the project's root.
        axes: in the order of their entries in a campaign's name. The last one varies fastest.
        exclude: combinations to leave out; each names an entry, or a list of them, of one or more axes.
        order: of measurement: as given, or drawn from seed.
        seed: of the order only; each campaign has the seed of its file.
    """

    sweep: _Name
    base: Text
    axes: Annotated[
        dict[_Axis, Annotated[tuple[EntryYaml, ...], Meta(min_length=1, max_length=100)]], Meta(min_length=1)
    ]
    exclude: tuple[Annotated[dict[str, str | tuple[str, ...]], Meta(min_length=1)], ...] = ()
    order: Literal["given", "seeded"] = "given"
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 20260526

    def __post_init__(self) -> None:
        super().__post_init__()
        known = {axis: [entry.name for entry in entries] for axis, entries in self.axes.items()}
        for axis, names in known.items():
            for k, name in enumerate(names):
                if (first := names.index(name)) < k:
                    raise ValueError(
                        f"axes.{axis}[{k}].name: {name!r} is the name of axes.{axis}[{first}] as well; give"
                        " each its own"
                    )
        for k, rule in enumerate(self.exclude):
            for axis, left_out in rule.items():
                names = [left_out] if isinstance(left_out, str) else [*left_out]
                if unknown := [name for name in names if name not in known.get(axis, ())]:
                    raise ValueError(f"exclude[{k}]: {axis} {unknown[0]!r} is not in this sweep ({known})")


@dataclass(frozen=True, slots=True)
class SweepCell:
    """A campaign of a sweep.

    Attributes:
        entries: axis -> name of its entry.
        mapping: the campaign file, with references to the environment as written.
        config: the same, checked.
    """

    name: str
    entries: Mapping[str, str]
    mapping: Foreign
    config: CampaignConfig


@dataclass(frozen=True, slots=True)
class Sweep:
    """A sweep with its campaigns.

    Attributes:
        path: of the sweep's own file.
        axes: axis -> names of its entries.
        cells: in the file's order, the last axis fastest.
        order: the same in the order of measurement.
        excluded: number of combinations left out.
    """

    name: str
    path: Path
    base: str
    axes: Mapping[str, tuple[str, ...]]
    cells: tuple[SweepCell, ...]
    order: tuple[SweepCell, ...]
    excluded: int

    @property
    def folder(self) -> Path:
        return checked.PROJECT_ROOT / "sweeps" / self.name

    def config_file(self, cell: SweepCell) -> Path:
        return self.folder / f"{cell.name}.yaml"

    @property
    def quoted_path(self) -> str:
        """Return the sweep file's path, quoted for a shell."""
        return shlex.quote(str(self.path))


def load_sweep(path: Path) -> Sweep:
    """Read a sweep, and check all its campaigns.

    Raises:
        ConfigError: unreadable or invalid, also a campaign of it; names the place.
    """
    value = checked.checked(checked.read_yaml(path, "config/sweep.yaml"), SweepYaml, str(path))
    base = checked.read_yaml(checked.PROJECT_ROOT / value.base)
    parse_campaign(base, where=value.base)
    cells: dict[str, SweepCell] = {}
    for combination in _combinations(value, path):
        cell = _cell(value, base, combination, path)
        # Case is ignored, as in some file systems.
        other = cells.setdefault(cell.name.lower(), cell)
        if other is not cell:
            both_entries = f"{_format_entries(other.entries)}, and {_format_entries(cell.entries)}"
            raise ConfigError(
                f"{path}: axes: two campaigns have one name, {cell.name}: {both_entries}. Rename an entry."
            )
    all_cells = tuple(cells.values())
    permutation = stream(value.seed, "sweep", value.sweep).permutation(len(all_cells))
    return Sweep(
        value.sweep,
        path,
        value.base,
        {axis: tuple(e.name for e in entries) for axis, entries in value.axes.items()},
        all_cells,
        tuple(all_cells[k] for k in permutation) if value.order == "seeded" else all_cells,
        math.prod(map(len, value.axes.values())) - len(all_cells),
    )


def _combinations(value: SweepYaml, path: Path) -> list[dict[str, EntryYaml]]:
    size = math.prod(map(len, value.axes.values()))
    # Above this size the combinations are not even enumerated.
    is_small = size <= 100 * MOST_CAMPAIGNS
    combinations = (dict(zip(value.axes, c, strict=True)) for c in itertools.product(*value.axes.values()))
    kept = [
        chosen
        for chosen in (combinations if is_small else ())
        if not any(
            all(
                chosen[axis].name in ([names] if isinstance(names, str) else names)
                for axis, names in rule.items()
            )
            for rule in value.exclude
        )
    ]
    n = len(kept) if is_small else size
    if not 0 < n <= MOST_CAMPAIGNS:
        raise ConfigError(
            f"{path}: axes: make {n} campaigns, those that exclude leaves; 1 to {MOST_CAMPAIGNS} are"
            " measured. Take fewer entries, or exclude others."
        )
    return kept


def _cell(value: SweepYaml, base: Foreign, chosen: Mapping[str, EntryYaml], path: Path) -> SweepCell:
    name = "-".join([value.sweep, *(e.name for e in chosen.values())])
    entries = {axis: e.name for axis, e in chosen.items()}
    paths = {axis: f"axes.{axis}[{value.axes[axis].index(e)}]" for axis, e in chosen.items()}
    for first, second in itertools.combinations(chosen, 2):
        entry_pair = chosen[first], chosen[second]
        # The order of axes must not change what is measured.
        for key, _, _ in start.differing(_with({}, *entry_pair), _with({}, *reversed(entry_pair)), ""):
            raise ConfigError(
                f"{path}: {paths[second]}.set.{key}: {paths[first]} sets it as well, to another value. Give a"
                " key to one axis alone."
            )
    mapping = _with({**base, "campaign": name}, *chosen.values())
    try:
        config = parse_campaign(mapping, where=f"{path}: campaign {name} ({_format_entries(entries)})")
    except ConfigError:
        for axis, entry in chosen.items():
            # An entry that fails on the base alone gets the blame, else the combination.
            parse_campaign(_with(base, entry), where=f"{path}: {paths[axis]} ({entry.name}), set")
        raise
    return SweepCell(name, entries, mapping, config)


def _with(base: Foreign, *entries: EntryYaml) -> Foreign:
    def merge(into: dict[str, Any], overrides: Foreign) -> dict[str, Any]:
        for key, value in overrides.items():
            are_mappings = isinstance(value, dict) and isinstance(into.get(key), dict)
            into[key] = merge(into[key], value) if are_mappings else copy.deepcopy(value)
        return into

    merged = copy.deepcopy(dict(base))
    for entry in entries:
        merge(merged, entry.overrides)
    return merged


def _format_entries(entries: Mapping[str, str], without: str = "") -> str:
    """Format ``release v031, model small``."""
    return ", ".join(f"{axis} {name}" for axis, name in entries.items() if axis != without)


def write_configs(sweep: Sweep) -> list[Path]:
    """Write a config for each campaign; unchanged files are left alone."""
    head = printable(f"# Made by connector-tax sweep of {sweep.path} and {sweep.base}; edit those.", 1000)
    for cell in sweep.cells:
        body = yaml.safe_dump(cell.mapping, sort_keys=False, allow_unicode=True, width=120)
        write_text_if_changed(sweep.config_file(cell), f"{head}\n{body}")
    return [*map(sweep.config_file, sweep.cells)]


def refuse_unset(sweep: Sweep) -> None:
    """Refuse unset variables before the first measurement, not hours later at their campaign's turn.

    Raises:
        ConfigError: an interpreter or a model refers to one.
    """
    for cell in sweep.cells:
        for key in ("python", "model"):
            if match := re.search(r"\$\{(\w+)\}", getattr(cell.config.engine, key) or ""):
                raise ConfigError(
                    f"{sweep.path}: campaign {cell.name}: engine.{key}: {match[0]}: that environment variable"
                    f" is not set. Export {match[1]}, then start again."
                )


@dataclass(slots=True)
class Outcome:
    """The result of running a sweep.

    Attributes:
        codes: campaign -> exit code, of those that ended.
        interrupted: the signal that ended the sweep; None if it finished.
        at: the campaign running then; None between two.
    """

    codes: dict[str, int] = field(default_factory=dict)
    interrupted: int | None = None
    at: str | None = None

    @property
    def failed(self) -> list[str]:
        return [name for name, code in self.codes.items() if code]


def run_all(commands: Mapping[str, Sequence[str]], folder: Path, say: Callable[[str], None]) -> Outcome:
    """Run every campaign's command once in ``folder``, in order; a failed one does not stop the others.

    Snakemake does not pass on Ctrl-C and SIGTERM, or ends only after its jobs. So a campaign's processes form
    a group, which gets the sweep's signal. If the sweep is killed, Snakemake is killed with it, and its jobs
    end in order.
    """
    outcome = Outcome()
    group = 0

    def pass_on() -> None:
        if group and outcome.interrupted is not None:
            with suppress(ProcessLookupError):
                os.killpg(group, outcome.interrupted)

    def interrupt(signum: int, frame: FrameType | None) -> None:
        # A second signal must not interrupt the clean-up that the first one started.
        if outcome.interrupted is None:
            outcome.interrupted = signum
            pass_on()

    old_handlers = {s: handler for s in ENDING if (handler := signal.getsignal(s)) != signal.SIG_IGN}
    for signum in old_handlers:
        signal.signal(signum, interrupt)
    try:
        for k, (name, command) in enumerate(commands.items(), start=1):
            if outcome.interrupted is not None:
                break
            say(f"campaign {k} of {len(commands)}: {name}")
            # A process group, not a session: a scheduler that divides cores by session would separate engine
            # and client.
            with subprocess.Popen(
                command, cwd=folder, stdin=subprocess.DEVNULL, process_group=0, preexec_fn=killed_with_parent
            ) as process:
                group = process.pid
                pass_on()  # a signal that arrived during the start
                code = process.wait()
            if still_running := _wait_until_gone(group):
                say(
                    f"still at work {MOST_ENDING_S:g} s after their Snakemake ended, and not waited for any"
                    f" longer: {', '.join(still_running)}. They may hold a card or a port."
                )
            group = 0
            if outcome.interrupted is not None:
                outcome.at = name
                break
            outcome.codes[name] = code
            if code:
                say(f"campaign {name} failed: {code_text(code)}")
    finally:
        for signum, handler in old_handlers.items():
            signal.signal(signum, handler)
    return outcome


def _wait_until_gone(group: int) -> list[str]:
    """Return the group's processes that still run after ``MOST_ENDING_S``.

    Zombies do not count: some containers' first process never reaps them.
    """
    deadline = time.monotonic() + MOST_ENDING_S
    while True:
        running = []
        for process in psutil.process_iter():
            with suppress(ProcessLookupError, psutil.NoSuchProcess):
                if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                    running.append(f"process {process.pid}")
        if not running or time.monotonic() >= deadline:
            return running
        time.sleep(0.1)


def code_text(code: int) -> str:
    """Format ``exit code 1`` or ``ended by SIGKILL``."""
    return f"ended by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


@dataclass(frozen=True, slots=True)
class State:
    """The progress of a campaign.

    Attributes:
        code: ``not_started``, ``at_work``, ``changed``, ``stopped``, ``measured``, ``finished`` or
            ``unreadable``.
        ended, runs: launches of configurations with a valid receipt, and all.
        left_s: expected; rates are guessed until Phase A is measured.
        why: the reason, for states that need one.
    """

    code: str
    ended: int
    runs: int
    left_s: float = 0.0
    why: str = ""

    @property
    def text(self) -> str:
        return printable(self.code.replace("_", " ") + f": {self.why}" * bool(self.why))


def state_of(config: CampaignConfig, results: Path) -> State:
    """Read a campaign's progress from its folder."""
    folder = CampaignFolder(results / config.campaign)
    runs = sum(len(config.members(phase)) for phase in config.phases)
    try:
        left_s = seconds_left(config, folder)
        if not folder.campaign_file.exists():
            return State("not_started", 0, runs, left_s)
        document = read_campaign_file(folder.campaign_file)
        # Values of variables that this shell lacks are unknown; a start that needs them reports it.
        changed_keys = [
            key
            for key, old_value, new_value in start.changed_keys(config, document)
            if "${" not in str(new_value) or "${" in str(old_value)
        ]
        snapshot = start.state_of(config, folder, document.date)
        ended = runs - sum(map(len, snapshot.left.values()))
        if (worker := worker_of(folder)) is not None:
            return State("at_work", ended, runs, left_s, f"process {worker}")
        if changed_keys:
            return State("changed", ended, runs, left_s, ", ".join(changed_keys))
        outputs = (
            folder.reference_rates,
            folder.aggregate,
            folder.aggregate_csv,
            folder.figures / "index.json",
            folder.report,
            folder.manifest,
        )
        missing = [str(path.relative_to(folder.root)) for path in outputs if not path.exists()]
        analysed_ns = folder.aggregate.stat().st_mtime_ns if folder.aggregate.exists() else 0
        receipts = [run.receipt for run in folder.runs() if run.receipt.exists()]
        if analysed_ns and any(receipt.stat().st_mtime_ns > analysed_ns for receipt in receipts):
            missing.append("an analysis of its newest runs")
    # Also if a folder may not be entered, or a restarting run is removing its own.
    except (ArtifactError, OSError) as error:
        return State("unreadable", 0, runs, why=str(error))
    reasons = [f"{connector_id} failed" for connector_id in sorted(snapshot.failed)]
    code = "stopped" if snapshot.left else "measured" if missing else "finished"
    if code == "measured":
        reasons.insert(0, f"without {', '.join(missing)}")
    return State(code, ended, runs, left_s, "; ".join(reasons))


def table_of(sweep: Sweep, results: Path, across: str | None, reference: Reference) -> list[list[str]]:
    """Return a header and every tax of every campaign: connectors in rows, one axis's entries in columns.

    Args:
        across: the axis in the columns; None takes the first.

    Raises:
        ConfigError: there is no such axis.
    """
    axis = across or next(iter(sweep.axes))
    if axis not in sweep.axes:
        raise ConfigError(f"--across {axis}: {sweep.path} has the axes {', '.join(sweep.axes)}.")
    columns = sweep.axes[axis]
    # Rows of one combination of the other axes stay together, whichever column they first appeared in.
    rows_by_campaign: dict[str, dict[tuple[str, str], dict[str, str]]] = {}
    for cell in sweep.cells:
        rows = rows_by_campaign.setdefault(_format_entries(cell.entries, axis), {})
        for row, text in _numbers(cell, results, reference):
            rows.setdefault(row, dict.fromkeys(columns, "-"))[cell.entries[axis]] = clean(text)
    head = ["campaigns", "connector", "what", *(f"{axis} {name}" for name in columns)]
    return [
        head,
        *(
            [campaign, *row, *t.values()]
            for campaign, rows in rows_by_campaign.items()
            for row, t in rows.items()
        ),
    ]


def _numbers(cell: SweepCell, results: Path, reference: Reference) -> Iterator[tuple[tuple[str, str], str]]:
    """Yield a campaign's rows: (connector, quantity) and the number, or why there is none."""
    state, side, reason = state_of(cell.config, results), None, ""
    try:
        if state.code not in ("changed", "unreadable") and (results / cell.name / "aggregate.json").exists():
            candidate = read_side(cell.name, results / cell.name)
            if (campaign := candidate.aggregate.campaign) == cell.name:
                side = candidate
            else:
                reason = f"results of campaign {campaign}"
    except (ArtifactError, OSError) as error:
        reason = f"unreadable: {error}"
    yield ("", "campaign"), state.text
    rate_per_s = None if side is None else reference_rate(side.aggregate, reference)
    if side is not None:
        yield ("", "measured on"), _source(side.aggregate)
        yield ("", "intervals"), f"{side.aggregate.provenance.confidence * 100:g} %"
        flags = [f"{flag}: {label('rate_flag', flag)}" for flag in reference_flags(side.aggregate)]
        yield ("", reference), "; ".join(["-" if rate_per_s is None else rate(rate_per_s), *flags])
    labels = Counter(c.label for c in cell.config.connectors)
    for connector, metric in itertools.product(cell.config.connectors, LATENCIES):
        if connector.id in ("plain", PLAIN_AGAIN) or (metric == "ttft_p90" and connector.ttft_is_no_tax):
            continue
        # Two connectors with one label would share a row.
        connector_name = connector.label if labels[connector.label] == 1 else connector.id
        row = clean(connector_name), f"{METRICS[metric]} tax"
        if side is None or rate_per_s is None:
            yield row, reason or (state.text if side is None else f"no {reference}")
            continue
        tax = number_of(side, connector.id, metric, reference, rate_per_s)
        marks = [launches_text(tax.n_blocks), *["saturated"] * tax.overloaded]
        marks += flags_at(side.aggregate, connector.id, metric, rate_per_s)
        value = tax.interval
        yield row, ", ".join([with_interval(value), *marks]) if value else tax.reason or ""


def _source(aggregate: Aggregate) -> str:
    version = aggregate.provenance.versions.get("vllm")
    parts = (f"vLLM {version}" if version else "", aggregate.measured_on.text, source_note(aggregate))
    return "; ".join(filter(None, parts))
