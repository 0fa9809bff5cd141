"""Loads a server cell by cell and writes records, ``summary.json``, ``summary.csv`` and ``load.html``."""

import ipaddress
import socket
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic_ns

from connector_tax import __version__
from connector_tax.base.documents.load import Found, Judged, LoadCell, Summary
from connector_tax.base.errors import ArtifactError, ConfigError
from connector_tax.base.files import write_json, write_lines, write_text
from connector_tax.base.records.cell import CellSpec
from connector_tax.base.records.request import RequestRecord
from connector_tax.base.records.target import RequestForm, Target
from connector_tax.base.templates import columns
from connector_tax.load import output
from connector_tax.load.find_rate import (
    chosen_by,
    find_rate,
    found_of,
    judge_cell,
    never_observed,
    too_short,
)
from connector_tax.load.measured import result_of
from connector_tax.load.plan import Content, Load, Sweep, cell_of, cells_of, contents_of, workers_for
from connector_tax.load.server import CacheCounters, measure_words, reach
from connector_tax.run.loadgen.cell import hits_between, measure_cell
from connector_tax.run.loadgen.coordinator import WorkerPool, worker_pool
from connector_tax.run.loadgen.descriptors import ENGINE_CORES, check_limit, discover, place
from connector_tax.run.loadgen.interrupt import Interrupt, heed_interrupts
from connector_tax.run.loadgen.messages import Ended, Observe
from connector_tax.run.workload.prompts import takes_ids

# The short closed loop from which a sweep chooses its rates and times.
PROBE_IN_FLIGHT, PROBE_S, PROBE_AT_MOST_S = 16, 5.0, 60.0
LIVE_EVERY_NS = 500_000_000


class LiveLine:
    """A status line for the running cell, rewritten in place; silent unless standard error is a terminal.

    The coordinator reports every request that ended.
    """

    def __init__(self, cell_id: str) -> None:
        self._cell_id = cell_id
        self._start_ns = self._next_ns = monotonic_ns()
        self._statuses: Counter[str] = Counter()

    def ended(self, request: Ended) -> None:
        self._statuses[request.status] += 1

    def tick(self, sent: int) -> None:
        """Write at most twice a second; called a few times a second while the cell runs.

        Args:
            sent: requests taken from the schedule so far.
        """
        now_ns = monotonic_ns()
        if now_ns >= self._next_ns:
            self._next_ns = now_ns + LIVE_EVERY_NS
            counts = "".join(f"{n} {status}, " for status, n in self._statuses.items())
            in_flight = max(sent - self._statuses.total(), 0)
            seconds = (now_ns - self._start_ns) / 1e9
            self._write(f"{self._cell_id}  {seconds:.0f} s  {counts}{in_flight} in flight")

    def close(self) -> None:
        self._write("")

    def _write(self, line: str) -> None:
        if sys.stderr.isatty():
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)


@dataclass(slots=True)
class _Run:
    """A run in progress."""

    load: Load
    target: Target
    pool: WorkerPool
    interrupt: Interrupt
    started_utc: str
    cache: CacheCounters
    cells: list[LoadCell] = field(default_factory=list)
    pictures: list[str] = field(default_factory=list)
    search: Found | None = None
    unwritten: bool = False

    def measure(self, spec: CellSpec) -> LoadCell:
        """Measure one cell, print and write it."""
        load = self.load
        try:
            with self.interrupt.measuring():
                with closing(LiveLine(spec.cell_id)) as live:
                    counters_before = self.cache.now()
                    outcome = measure_cell(
                        spec,
                        self.target,
                        pool=self.pool,
                        observe=Observe(load.token_times, load.out if load.event_log else None, live),
                        should_stop=self.interrupt.should_stop,
                        should_abort=self.interrupt.should_abort,
                    )
                    hits = hits_between(counters_before, self.cache.now())
                cell = result_of(spec, outcome, percentiles=load.percentiles, limits=load.goodput, hits=hits)
                self.cells.append(cell)
                try:
                    print(output.cell_text(cell), flush=True)
                finally:
                    # Also if standard output is closed.
                    self._write(spec, cell, outcome.requests)
        except KeyboardInterrupt:
            is_shown = spec.cell_id in [cell.cell_id for cell in self.cells]
            consequence = (
                "may lack in --out" if is_shown else "was not over: its numbers and requests are lost"
            )
            print(f"{spec.cell_id} {consequence}", file=sys.stderr)
            raise
        self.interrupt.raise_if_asked()
        return cell

    def _write(self, spec: CellSpec, cell: LoadCell, requests: list[RequestRecord]) -> None:
        """Write a cell's files; a full disk stops neither printing nor the remaining rates."""
        self.pictures.append(output.picture(cell, requests))
        with self._writing(f"requests of {spec.cell_id}"):
            write_lines(self.load.out / f"requests_{spec.cell_id}.jsonl", (r.to_line() for r in requests))
        self.write_summary()

    @contextmanager
    def _writing(self, what: str) -> Iterator[None]:
        try:
            yield
        except (ArtifactError, OSError) as error:
            self.unwritten = True
            cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
            reason = cause.strerror if isinstance(cause, OSError) else None
            print(f"not written: {what}, in {self.load.out} ({reason or cause})", file=sys.stderr)

    def write_summary(self) -> None:
        load = self.load
        summary = Summary(
            version=__version__,
            started_utc=self.started_utc,
            base_url=self.target.base_url,
            model=self.target.model,
            api=load.spec.asked.api,
            nonce=load.spec.nonce or 0,
            workers=self.pool.n,
            cells=tuple(self.cells),
            search=self.search,
        )
        with self._writing("summary.json"):
            write_json(load.out / "summary.json", summary)
        with self._writing("summary.csv"):
            write_text(load.out / "summary.csv", output.csv_of(self.cells))
        with self._writing("load.html"):
            write_text(load.out / "load.html", output.page(summary, load, self.pictures))

    def say_search(self) -> None:
        """Print the result of a search."""
        if self.search is not None:
            print("", *output.found_lines(self.search), sep="\n", flush=True)


def run(load: Load) -> int:
    """Measure everything that was asked for.

    Returns:
        The exit code: 1 if a cell is not to be believed, 2 if a file could not be written.

    Raises:
        ConfigError: the server, a file or a setting is not as given.
        KeyboardInterrupt: Ctrl-C or SIGTERM; what was measured until then is written.
    """
    refuse_results(load.out)
    target = reach(load.target)
    # Fails now rather than after an hour of load.
    probe = load.out / ".writable"
    write_text(probe, "")
    probe.unlink()
    contents = contents_of(load)
    form = load.spec.asked
    if load.shapes and not takes_ids(form):
        form = measure_words(target, form, load.spec.seed)
        print(
            f"a word is {form.tokens_per_word:.3g} prompt tokens at this server, and a prompt"
            f" {form.template_tokens:.3g} more"
        )
    cells = cells_of(load, contents, form)
    is_local, cores = is_here(target), discover()
    workers = workers_for(cells, cores, asked=load.workers, here=is_local)
    specs = [_ready(cell, workers) for cell in cells]
    if load.prompts is None:
        print(
            f"prompts of nonce {load.spec.nonce}: --nonce sends the same ones again, --seed the same schedule"
        )
    started_utc = datetime.now(UTC).isoformat(timespec="seconds")
    placement = place(cores, workers, engine_cores=ENGINE_CORES if is_local else 0)
    with heed_interrupts() as interrupt, worker_pool(workers, placement) as pool:
        running = _Run(load, target, pool, interrupt, started_utc, CacheCounters(target))
        if load.sweep is None:
            for spec in specs:
                running.measure(spec)
        else:
            _search(running, load.sweep, contents[0], form)
    if len(running.cells) > 1:
        print("", *columns(output.summary_rows(running.cells)), sep="\n")
    running.say_search()
    if running.unwritten:
        print(f"some files are not in {load.out}: make room there, or give another --out", file=sys.stderr)
        return 2
    print(f"{load.out / 'load.html'}", flush=True)
    return int(any(cell.not_believed for cell in running.cells))


def _ready(cell: Content, workers: int) -> CellSpec:
    spec = replace(cell.spec, workers=workers if workers > 1 else None)
    check_limit(spec)
    return spec


def _search(running: _Run, sweep: Sweep, content: Content, form: RequestForm) -> None:
    slo = running.load.slo
    judged: list[Judged] = []

    def measured(content: Content, rate_per_s: float) -> LoadCell:
        return running.measure(_ready(cell_of(content, rate_per_s, form), running.pool.n))

    if not sweep.low_per_s:
        print(
            f"a sweep of {running.target.model} into {running.load.out}: {PROBE_IN_FLIGHT} requests at a time"
            " come first"
        )
        spec = replace(
            content.spec,
            arrival="concurrency",
            concurrency=PROBE_IN_FLIGHT,
            min_completed=2 * PROBE_IN_FLIGHT,
            warmup_s=0.0,
            duration_s=PROBE_S,
            max_cell_s=PROBE_AT_MOST_S,
        )
        probe = measured(content._replace(spec=spec), 0.0)
        if not probe.requests.get("ok"):
            return
        sweep, content = chosen_by(probe, sweep, content)

    def judge(rate_per_s: float) -> Judged | str:
        cell = measured(content, rate_per_s)
        if cell.not_believed:
            return "; ".join(cell.not_believed)
        if unknown := never_observed(cell, slo):
            return f"no answer has a {unknown}, which a limit is of"
        if reason := too_short(cell, slo):
            return reason
        judged.append(judge_cell(cell, rate_per_s, slo))
        return judged[-1]

    unit = "requests/s" if running.load.sessions is None else "sessions/s"
    try:
        running.search = find_rate(sweep, judge, unit)
    except KeyboardInterrupt:
        # The results so far are an answer as well.
        running.search = found_of(judged, "interrupted", unit)
        running.say_search()
        raise
    finally:
        running.write_summary()


def refuse_results(out: Path) -> None:
    """Refuse a folder that holds results, since nothing replaces them.

    Raises:
        ConfigError: results are there.
    """
    patterns = ("summary.json", "summary.csv", "load.html", "requests_*.jsonl", "events_*.jsonl")
    if names := [path.name for pattern in patterns for path in sorted(out.glob(pattern))]:
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        raise ConfigError(
            f"--out {out}: holds results already ({names[0]}{more}), and a load replaces none. Give another"
            " --out, or move them away. No request was sent."
        )


def is_here(target: Target) -> bool:
    """Return whether the server's address is loopback; False for an unknown name."""
    try:
        addresses = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return any(ipaddress.ip_address(str(entry[4][0]).partition("%")[0]).is_loopback for entry in addresses)
