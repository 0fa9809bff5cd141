"""What is to be loaded, and the cells that it comes to."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import ceil
from pathlib import Path
from typing import Any

from connector_tax.base.errors import ConfigError
from connector_tax.base.files import write_text
from connector_tax.base.records.cell import CellSpec, Shape
from connector_tax.base.records.sessions import read_sessions
from connector_tax.base.records.target import RequestForm
from connector_tax.base.seeds import derive_seed
from connector_tax.load.server import Access
from connector_tax.load.slo import CellLimit, RequestLimit
from connector_tax.load.sources import write_prompts, write_trace
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
        pattern: fields of ``CellSpec`` that make the load pattern.
        workers: None chooses them.
    """

    access: Access
    out: Path
    rates_per_s: tuple[float, ...]
    pattern: dict[str, Any]
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
        fields: of ``CellSpec``.
        mean_output_tokens: of an answer, about.
    """

    fields: dict[str, Any]
    mean_output_tokens: float


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
        if load.pattern["arrival"] in OPEN_LOOP and read_sessions(load.sessions)[0].arrival_s is not None:
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
        return (Content({"prompts": str(path), "input_tokens": 0, "output_tokens": 0}, mean),)
    return tuple(
        Content(
            {
                "input_tokens": shape.input_tokens if load.input_length is None else 0,
                "output_tokens": shape.output_tokens if output is None else 0,
                "input_lengths": load.input_length,
                "output_lengths": load.output_length,
                "nonce": load.nonce,
            },
            float(shape.output_tokens) if output is None else output.mean,
        )
        for shape in (
            load.shapes[:1] if load.input_length is not None and output is not None else load.shapes
        )
    )


def _sessions(path: Path, load: Load) -> Content:
    sessions = read_sessions(path)
    turns = [turn for session in sessions for turn in session.turns]
    fields = {
        "sessions": str(path),
        "input_tokens": 0,
        "output_tokens": 0,
        "nonce": load.nonce,
        "keep_failed_sessions": load.keep_failed_sessions or None,
    }
    if load.trace is not None:
        # A trace ends by itself, when its last request has ended.
        fields["num_requests"] = len(sessions)
    return Content(fields, sum(t.output_tokens for t in turns) / len(turns))


def cell_of(load: Load, content: Content, rate_per_s: float, form: RequestForm) -> CellSpec:
    """One cell, but for its workers."""
    timing, low_high = load.timing, load.token_ids
    fields: dict[str, Any] = {
        "num_requests": timing.num_requests,
        "warmup_s": timing.warmup_s,
        "duration_s": timing.duration_s,
        "min_completed": timing.min_completed,
        **load.pattern,
        **content.fields,
    }
    if load.trace is not None:
        if timing.num_requests is not None:
            fields["num_requests"] = min(timing.num_requests, content.fields["num_requests"])
        fields |= {"warmup_s": 0.0, "duration_s": 0.0, "min_completed": 0}
    shape = Shape(fields["input_tokens"], fields["output_tokens"])
    return CellSpec(
        phase="a",
        rate_per_s=rate_per_s,
        max_cell_s=timing.max_cell_s,
        drain_timeout_s=timing.drain_timeout_s,
        inflight_cap=timing.inflight_cap,
        seed=derive_seed(load.seed, "cell", f"{rate_per_s:g}", str(shape)),
        token_id_low=low_high[0],
        token_id_high=low_high[1],
        form=None if form == RequestForm() else form,
        **fields,
    )


def cells_of(
    load: Load, contents: tuple[Content, ...], form: RequestForm
) -> Iterator[tuple[CellSpec, Content]]:
    """Every rate at every shape; one cell where there is no rate."""
    # The arrival process of a trace is never asked, and a schedule wants some rate.
    rates = load.rates_per_s or ((1.0,) if load.trace is not None else (0.0,))
    for content, rate in product(contents, rates):
        yield cell_of(load, content, rate, form), content


def workers_for(
    load: Load, cells: list[tuple[CellSpec, Content]], cores: tuple[Core, ...], *, here: bool
) -> int:
    """How many processes the heaviest cell wants, of those that the cores allow.

    Args:
        here: the server runs on this host, and is left half of its cores.
    """
    if load.workers is not None:
        return load.workers
    wanted = max(
        max(_tokens_per_s(s, c) / TOKENS_PER_WORKER_PER_S, in_flight(s) / IN_FLIGHT_PER_WORKER)
        for s, c in cells
    )
    if load.sweep is not None:
        wanted = max(wanted, load.sweep.high_per_s * cells[0][1].mean_output_tokens / TOKENS_PER_WORKER_PER_S)
    room = len(cores) // 2 if here else len(cores) - 1
    return max(1, min(ceil(wanted), room, MOST_WORKERS))


def _tokens_per_s(spec: CellSpec, content: Content) -> float:
    if spec.arrival in ("fixed", "poisson", "gamma"):
        turns = 1.0
        if spec.sessions is not None:
            sessions = read_sessions(Path(spec.sessions))
            turns = sum(len(s.turns) for s in sessions) / len(sessions)
            # A trace's rate is its own.
            if sessions[-1].arrival_s:
                turns *= len(sessions) / sessions[-1].arrival_s / spec.rate_per_s
        return spec.rate_per_s * turns * content.mean_output_tokens
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
