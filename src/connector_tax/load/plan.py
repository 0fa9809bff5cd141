"""What is to be loaded, and the cells that it comes to."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import product
from math import ceil
from pathlib import Path

from connector_tax.base.documents.load import RequestLimit
from connector_tax.base.errors import ConfigError
from connector_tax.base.files import write_text
from connector_tax.base.records.cell import CellSpec, Shape
from connector_tax.base.records.sessions import read_sessions
from connector_tax.base.records.target import RequestForm
from connector_tax.base.seeds import derive_seed
from connector_tax.load.prompts import write_prompts
from connector_tax.load.server import Access
from connector_tax.load.slo import CellLimit
from connector_tax.load.traces import write_trace
from connector_tax.run.loadgen.descriptors import in_flight
from connector_tax.run.loadgen.placement import Core, Placement, place
from connector_tax.run.workload.arrivals import OPEN_LOOP
from connector_tax.run.workload.datasets import check_prompts, read_prompts
from connector_tax.run.workload.lengths import parse_lengths

# A worker takes some 65,000 tokens a second on a slow core, each a read of its own. With more than a third of that its own work
# would begin to show in what it stamps.
TOKENS_PER_WORKER_PER_S = 20_000.0
IN_FLIGHT_PER_WORKER = 2_000
# Of a closed loop the rate is the server's; engines make some 20 to 100 tokens a second and request.
TOKENS_PER_REQUEST_PER_S = 50.0
MOST_WORKERS = 16


@dataclass(frozen=True, slots=True)
class Timing:
    """How long a cell lasts; fields of ``CellSpec``."""

    num_requests: int | None
    warmup_s: float
    duration_s: float
    min_completed: int
    max_cell_s: float
    drain_timeout_s: float
    inflight_cap: int


@dataclass(frozen=True, slots=True)
class Pattern:
    """When requests are sent; fields of ``CellSpec``."""

    arrival: str
    gamma_shape: float | None = None
    concurrency: int | None = None
    ramp_up_s: float | None = None
    ramp_from_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class Sweep:
    """Look for the highest rate between two that holds the limits; ``precision`` is a share of it."""

    low_per_s: float
    high_per_s: float
    precision: float


@dataclass(frozen=True, slots=True)
class Load:
    """Everything that the command line says.

    Attributes:
        rates_per_s: of open loops; empty for others.
        shapes: empty where a file has lengths of its own.
        workers: None chooses them.
    """

    access: Access
    out: Path
    rates_per_s: tuple[float, ...]
    pattern: Pattern
    shapes: tuple[Shape, ...]
    sessions: Path | None
    prompts: Path | None
    trace: Path | None
    speed: float
    input_length: str | None
    output_length: str | None
    chars_per_token: float
    form: RequestForm
    timing: Timing
    sweep: Sweep | None
    slo: tuple[CellLimit, ...]
    goodput: tuple[RequestLimit, ...]
    percentiles: tuple[float, ...]
    workers: int | None
    token_ids: tuple[int, int]
    keep_failed_sessions: bool
    token_times: bool
    event_log: bool
    seed: int
    nonce: int


@dataclass(frozen=True, slots=True)
class Content:
    """What is sent, as files that workers read, or by lengths.

    Attributes:
        mean_output_tokens: of an answer, about.
        n_of_trace: how many requests or sessions a trace has; it ends by itself, when its last request has ended. None for no trace.
    """

    mean_output_tokens: float
    input_tokens: int = 0
    output_tokens: int = 0
    input_lengths: str | None = None
    output_lengths: str | None = None
    prompts: str | None = None
    sessions: str | None = None
    keep_failed_sessions: bool | None = None
    nonce: int | None = None
    n_of_trace: int | None = None


def contents_of(load: Load) -> tuple[Content, ...]:
    """One for each shape; foreign files are written into ``load.out`` in the project's own form.

    Raises:
        ConfigError: a file that cannot be read, or lengths that are none.
    """
    output = parse_lengths(load.output_length) if load.output_length is not None else None
    if load.trace is not None:
        path = load.out / f"{load.trace.stem}.sessions.jsonl"
        write_trace(load.trace, path, speed=load.speed)
        return (_sessions(path, load),)
    if load.sessions is not None:
        if load.pattern.arrival in OPEN_LOOP and read_sessions(load.sessions)[0].arrival_s is not None:
            raise ConfigError(
                f"--sessions {load.sessions}: its sessions have times of their own (arrival_s), so that no rate applies. Give it as --trace."
            )
        return (_sessions(load.sessions, load),)
    if load.prompts is not None:
        path = load.out / f"{load.prompts.stem}.prompts.jsonl"
        write_prompts(
            load.prompts,
            path,
            output_lengths=output,
            seed=load.seed,
            chars_per_token=load.chars_per_token,
            limit=load.timing.num_requests,
        )
        prompts = read_prompts(path)
        check_prompts(load.prompts, prompts, load.form.api)
        mean = sum(p.output_tokens for p in prompts) / len(prompts)
        return (Content(mean, prompts=str(path)),)
    return tuple(
        Content(
            float(shape.output_tokens) if output is None else output.mean,
            input_tokens=shape.input_tokens if load.input_length is None else 0,
            output_tokens=shape.output_tokens if output is None else 0,
            input_lengths=load.input_length,
            output_lengths=load.output_length,
            nonce=load.nonce,
        )
        for shape in (
            load.shapes[:1] if load.input_length is not None and output is not None else load.shapes
        )
    )


def _sessions(path: Path, load: Load) -> Content:
    sessions = read_sessions(path)
    turns = [turn for session in sessions for turn in session.turns]
    return Content(
        sum(t.output_tokens for t in turns) / len(turns),
        sessions=str(path),
        keep_failed_sessions=load.keep_failed_sessions or None,
        nonce=load.nonce,
        n_of_trace=None if load.trace is None else len(sessions),
    )


def cell_of(load: Load, content: Content, rate_per_s: float, form: RequestForm) -> CellSpec:
    """One cell, but for its workers."""
    timing = load.timing
    if (n := content.n_of_trace) is not None:
        sent = n if timing.num_requests is None else min(timing.num_requests, n)
        timing = replace(timing, num_requests=sent, warmup_s=0.0, duration_s=0.0, min_completed=0)
    low, high = load.token_ids
    return CellSpec(
        phase="a",
        rate_per_s=rate_per_s,
        **asdict(timing),
        **asdict(load.pattern),
        input_tokens=content.input_tokens,
        output_tokens=content.output_tokens,
        input_lengths=content.input_lengths,
        output_lengths=content.output_lengths,
        prompts=content.prompts,
        sessions=content.sessions,
        keep_failed_sessions=content.keep_failed_sessions,
        nonce=content.nonce,
        seed=derive_seed(
            load.seed,
            "cell",
            f"{rate_per_s:g}",
            str(Shape(content.input_tokens, content.output_tokens)),
        ),
        token_id_low=low,
        token_id_high=high,
        form=None if form == RequestForm() else form,
    )


def cells_of(
    load: Load, contents: tuple[Content, ...], form: RequestForm
) -> Iterator[tuple[CellSpec, Content]]:
    """Every rate at every shape; one cell where there is no rate."""
    rates = load.rates_per_s or (0.0,)
    for content, rate in product(contents, rates):
        yield cell_of(load, content, rate, form), content


def workers_for(
    load: Load, cells: list[tuple[CellSpec, Content]], cores: tuple[Core, ...], *, here: bool
) -> int:
    """How many processes the heaviest cell wants, of those that the cores allow.

    Args:
        here: the server runs on this host, and is left half of its cores.

    Raises:
        ConfigError: so many as are asked for cannot share a closed loop.
    """
    slots = _slots_of_fixed_numbers(cells)
    if load.workers is not None:
        if slots is not None and slots % load.workers:
            raise ConfigError(
                f"--workers {load.workers}: {slots} requests in flight (--concurrency) cannot be divided evenly among them, so a fixed number "
                "(--num-prompts) would not keep them all in flight. Give a number that divides it."
            )
        return load.workers
    wanted = max(
        max(_tokens_per_s(s, c) / TOKENS_PER_WORKER_PER_S, in_flight(s) / IN_FLIGHT_PER_WORKER)
        for s, c in cells
    )
    if load.sweep is not None:
        wanted = max(wanted, load.sweep.high_per_s * cells[0][1].mean_output_tokens / TOKENS_PER_WORKER_PER_S)
    room = len(cores) // 2 if here else len(cores) - 1
    n = max(1, min(ceil(wanted), room, MOST_WORKERS))
    return n if slots is None else next(k for k in range(n, 0, -1) if slots % k == 0)


def _slots_of_fixed_numbers(cells: list[tuple[CellSpec, Content]]) -> int | None:
    """Requests that a closed loop of a fixed number keeps in flight, of which each worker has a share; None for other cells."""
    spec = cells[0][0]
    if spec.num_requests is None or spec.arrival not in ("concurrency", "max_throughput"):
        return None
    return spec.inflight_cap if spec.concurrency is None else spec.concurrency


def _tokens_per_s(spec: CellSpec, content: Content) -> float:
    if spec.arrival in ("fixed", "poisson", "gamma"):
        rate_per_s, turns = spec.rate_per_s, 1.0
        if spec.sessions is not None:
            sessions = read_sessions(Path(spec.sessions))
            turns = sum(len(s.turns) for s in sessions) / len(sessions)
            # A trace's rate is its own.
            if sessions[-1].arrival_s:
                rate_per_s = len(sessions) / sessions[-1].arrival_s
        return rate_per_s * turns * content.mean_output_tokens
    return in_flight(spec) * TOKENS_PER_REQUEST_PER_S


def placement_for(cores: tuple[Core, ...], n_workers: int, *, here: bool) -> Placement:
    """Cores for coordinator and workers; those that are left are the server's, where it runs here."""
    return place(cores, n_workers) if here else place(cores, n_workers, engine_cores=0)


def check_out(out: Path) -> None:
    """
    Raises:
        ConfigError: results cannot be written there; better known before an hour of load than after it.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        probe = out / ".writable"
        write_text(probe, "")
        probe.unlink()
    except OSError as error:
        raise ConfigError(f"--out {out}: cannot be written to ({error}).") from error
