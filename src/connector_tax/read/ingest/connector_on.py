"""Checks for each measured cell whether the connector was on, by preflight's proofs and the launch's files.

Any of three kinds of evidence shows that it was off: the launch's log says so; a counter that it moved in
preflight, or in another cell, did not rise; its hooks, or those of one child of a stack, were not called or
took next to no time. The last one also finds a connector that switches itself off silently, since vLLM still
calls its hooks and counts its queries.
"""

import tempfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np

from connector_tax.base.artifacts.layout import LOGS, CampaignFolder, RunFolder
from connector_tax.base.connector_off import EXTERNAL_QUERIES, said_in
from connector_tax.base.documents.aggregate import Problem
from connector_tax.base.documents.receipt import CACHE_ASKED, Decision, PreflightStatus
from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import each_line_of, is_regular
from connector_tax.base.records.cell import CellWindow
from connector_tax.base.records.request import RequestRecord
from connector_tax.base.steptime.share import cut
from connector_tax.base.units import MOST_NS, NS_PER_S
from connector_tax.read.ingest.cells import CellData
from connector_tax.read.ingest.samples import Counted
from connector_tax.read.ingest.steps import read_steps

# A cell's flag: a counter should have risen, and whether it did is unknown.
UNPROVED = "connector_unproved"
# A connector that stops within a cell: at least so many requests, and this share of all, were sent and
# answered after the counter's last rise.
STOPPED_REQUESTS, STOPPED_SHARE = 10, 0.25
# LMCache updates its counters every ten seconds: in a shorter cell one may rise too late.
MOST_LATE_S = 10.0
# In 21 cells of seven connectors on vLLM, hooks took 1.1 to 75 times as long as in preflight; those of a
# connector that does nothing took 10 us of a decode step. A called hook takes some time, however little.
IDLE_SHARE = 0.25
LEAST_HOOKS_US = 40.0
# A preflight has about a hundred steps.
MOST_PREFLIGHT_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class _Known:
    """Behaviour of a configuration while it is on.

    Attributes:
        counters: engine counter -> the shortest prompt that raises it, in tokens.
        hooks: member of the connector -> kind of step -> time in preflight; empty if unknown.
    """

    counters: dict[str, int]
    hooks: dict[str, dict[str, float]]


def with_proofs(
    runs: Sequence[tuple[RunFolder, Sequence[CellData]]],
    preflight: PreflightStatus | None,
    folder: CampaignFolder,
    caches: Collection[str] = (),
) -> list[tuple[CellData, ...]]:
    """Judge the cells of each run; one whose connector was off becomes invalid, with the evidence.

    Args:
        caches: configurations whose cache must be queried for prompts, even without a preflight launch.
    """
    cells_by_config: dict[str, list[CellData]] = {}
    for _, cells in runs:
        for cell in cells:
            if cell.document.kv_transfer_config is not None:
                cells_by_config.setdefault(cell.config, []).append(cell)
    decisions = preflight.configs if preflight is not None else {}
    known_by_config = {
        config: _Known(
            _counters_of(decisions.get(config), cells, config in caches),
            _preflight_hooks(folder.preflight / config / "steps"),
        )
        for config, cells in cells_by_config.items()
    }
    off_by_log = cache(_off_by_log)  # a launch has many cells

    def proved(run: RunFolder, cell: CellData, cells: Sequence[CellData]) -> CellData:
        if cell.config not in known_by_config or cell.faults:
            return cell
        launch = [c for c in cells if c.document.attempt == cell.document.attempt]
        # A later launch of the run moves this launch's log away.
        archived = run.path / f"attempt_{cell.document.attempt}"
        log = off_by_log(archived if archived.is_dir() else run.path)
        return _judged(cell, launch, log, known_by_config[cell.config])

    return [tuple(proved(run, cell, cells) for cell in cells) for run, cells in runs]


def _counters_of(decision: Decision | None, cells: Sequence[CellData], is_cache: bool) -> dict[str, int]:
    """Return counters that must rise in each cell, by preflight or another cell; for a cache by its entry."""
    counters: dict[str, int] = {}
    cache_was_asked = decision is not None and any(f.check == CACHE_ASKED and f.ok for f in decision.checked)
    if cache_was_asked or (is_cache and any(_own_rise(c) is not None for c in cells)):
        counters[EXTERNAL_QUERIES] = 0
    counters |= (decision and decision.counters) or {}
    shortest = [_longest_prompt(c) for c in cells if (_own_rise(c) or 0) > 0]
    if shortest:
        counters[EXTERNAL_QUERIES] = min(*shortest, counters.get(EXTERNAL_QUERIES, shortest[0]))
    return counters


def _preflight_hooks(folder: Path) -> dict[str, dict[str, float]]:
    """Return low quantiles of hook times in preflight; empty without readable records.

    They are the 10th percentile for decode steps, and the minimum for prompts, which differ in length. Low
    values are used since a busy host can lengthen wall times manyfold but never shortens them.
    """
    raw = [path for path in sorted(folder.glob("engine_step.*.jsonl")) if is_regular(path)]
    if not raw or sum(path.stat().st_size for path in raw) > MOST_PREFLIGHT_BYTES:
        return {}
    try:
        with tempfile.TemporaryDirectory() as temporary:
            share_file = Path(temporary) / "engine_step.jsonl"
            cut(raw, 0, MOST_NS, share_file)
            table = read_steps(share_file, CellWindow(0, 0, MOST_NS, MOST_NS, True), connector=True)
    except (ArtifactError, OSError, LookupError, TypeError, ValueError, RecursionError):
        return {}
    return {
        member: {
            kind: float(np.quantile(us, 0.1) if kind == "decode" else us.min()) for kind, us in kinds.items()
        }
        for member, kinds in table.member_us.items()
    }


def _off_by_log(folder: Path) -> Problem | None:
    """Return what a launch's log says about a connector that is off; None if nothing."""
    for name in LOGS:
        try:
            lines = (line.decode(errors="replace") for line in each_line_of(folder / name))
            if (log_evidence := said_in(lines)) is not None:
                return Problem("off_log", detail=log_evidence[1])
        except (ArtifactError, OSError):
            continue
    return None


def _judged(cell: CellData, launch: Sequence[CellData], log: Problem | None, known: _Known) -> CellData:
    """Compare a cell with the behaviour of its connector while on.

    Args:
        launch: all cells of its launch.
        log: the log's evidence.
    """
    expected_counters = [name for name, tokens in known.counters.items() if _longest_prompt(cell) >= tokens]
    is_brief = cell.window.drained_ns - cell.window.t0_ns < MOST_LATE_S * NS_PER_S
    counter_deltas = (cell.document.counters_delta or {}).items()
    rises = {name: rise for name, rise in counter_deltas if rise or name == EXTERNAL_QUERIES or not is_brief}
    queries = _around(cell, launch)
    answers = [r for r in cell.requests if r.status == "ok"]
    if (rise := _rise(queries)) is not None and _sent_since(queries[0][0], queries, answers):
        rises.setdefault(EXTERNAL_QUERIES, rise)
    off = [log] if log is not None else []
    if answers:
        # A counter that fell or disappeared did not rise.
        off += [Problem("off_counter", name) for name in expected_counters if rises.get(name, 1) <= 0]
        off += _stopped(queries, answers) if rises.get(EXTERNAL_QUERIES, 0) > 0 else []
    off += _idle(cell, known.hooks, counted=any(rise > 0 for rise in rises.values()))
    document = cell.document
    if off:
        document = msgspec.structs.replace(document, verdict="invalid")
    elif any(name not in rises for name in expected_counters):
        document = msgspec.structs.replace(document, flags=(*document.flags, UNPROVED))
    return replace(cell, document=document, off=tuple(off))


def _longest_prompt(cell: CellData) -> int:
    """Return the longest answered prompt in tokens; a conversation's prompts are in no plan."""
    return max((r.prompt_tokens or 0 for r in cell.requests if r.status == "ok"), default=0)


def _own_rise(cell: CellData) -> float | None:
    """Return the rise of external queries over the cell; None if unknown."""
    return (cell.document.counters_delta or {}).get(EXTERNAL_QUERIES, _rise(cell.samples.external_queries))


def _around(cell: CellData, launch: Sequence[CellData]) -> Counted:
    """Return the counter from the cell's first sample to the first after its drain.

    With fewer than two such samples it starts with the last sample before, which lacks the end of the earlier
    cell; else all samples of the launch are used.
    """
    samples = sorted(sample for other in launch for sample in other.samples.external_queries)
    before = [s for s in samples if s[0] < cell.window.t0_ns][-1:]
    after = [s for s in samples if s[0] >= cell.window.drained_ns][:1]
    inside = [s for s in samples if cell.window.t0_ns <= s[0] < cell.window.drained_ns]
    around = next((s for s in ([*inside, *after], [*before, *inside, *after]) if len(s) > 1), samples)
    return tuple(around)


def _rise(samples: Counted) -> float | None:
    """Return the rise from the first sample to the last; None for fewer than two."""
    return samples[-1][1] - samples[0][1] if len(samples) > 1 else None


def _stopped(samples: Counted, answers: Sequence[RequestRecord]) -> list[Problem]:
    """Report a counter that rose at first and then stopped while requests were sent and answered."""
    rises_ns = [b[0] for a, b in pairwise(samples) if b[1] > a[1]]
    n_since = _sent_since(rises_ns[-1], samples, answers) if rises_ns else 0
    stopped = n_since >= max(STOPPED_REQUESTS, STOPPED_SHARE * len(answers))
    return (
        [Problem("off_counter_stopped", EXTERNAL_QUERIES, numbers={"requests": n_since})] if stopped else []
    )


def _sent_since(t_ns: int, samples: Counted, answers: Sequence[RequestRecord]) -> int:
    """Count requests sent after ``t_ns`` that the last sample includes, by their first token."""
    end_ns = samples[-1][0]
    return sum((r.t_send_ns or 0) > t_ns and (r.t_first_token_ns or end_ns) < end_ns for r in answers)


def _idle(cell: CellData, known: dict[str, dict[str, float]], *, counted: bool) -> list[Problem]:
    """Report members of the connector whose hooks did nothing.

    Args:
        counted: a counter proves the connector on; unrecorded hooks are then the recorder's fault.
    """
    if cell.steps is None or not cell.steps.n:
        return []
    problems = []
    for member, expected in known.items():
        member_name = member or cell.config
        hooks_us = cell.steps.members.get(member)
        if hooks_us is None and (cell.steps.members or not counted):
            problems.append(Problem("off_hooks_missing", member_name))
        for kind, us in (hooks_us or {}).items():
            before_us = expected.get(kind, 0.0)
            if us < IDLE_SHARE * before_us and (us == 0 or before_us >= LEAST_HOOKS_US):
                numbers = {"us": round(us, 1), "preflight_us": round(before_us, 1)}
                problems.append(Problem("off_hooks_idle", member_name, numbers=numbers))
                break
    return problems
