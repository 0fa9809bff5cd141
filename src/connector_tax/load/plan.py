"""What is to be loaded, and the cells that it comes to."""

from dataclasses import dataclass, replace
from itertools import product
from math import ceil
from pathlib import Path
from typing import NamedTuple

from connector_tax.base.documents.load import RequestLimit
from connector_tax.base.errors import ConfigError
from connector_tax.base.records.cell import CellSpec, Shape
from connector_tax.base.records.sessions import read_sessions
from connector_tax.base.records.target import RequestForm, Target
from connector_tax.base.seeds import derive_seed
from connector_tax.load.slo import CellLimit
from connector_tax.load.sources import write_prompts, write_trace
from connector_tax.run.loadgen.descriptors import Core, in_flight
from connector_tax.run.workload.arrivals import OPEN_LOOP
from connector_tax.run.workload.lengths import parse_lengths
from connector_tax.run.workload.prompts import check_prompts, read_prompts

# A worker takes some 65,000 tokens a second on a slow core, each a read of its own. With more than a third of
# that its own work would begin to show in what it stamps.
TOKENS_PER_WORKER_PER_S = 20_000.0
IN_FLIGHT_PER_WORKER = 2_000
# Of a closed loop the rate is the server's; engines make some 20 to 100 tokens a second and request.
TOKENS_PER_REQUEST_PER_S = 50.0
MOST_WORKERS = 16


@dataclass(frozen=True, slots=True)
class Sweep:
    """Look for the highest rate between two that holds the limits.

    Attributes:
        low_per_s: 0: it is chosen by what the server does in a short closed loop, and so are the times that
            are None.
        precision: a share of the rate.
    """

    low_per_s: float
    high_per_s: float
    precision: float
    warmup_s: float | None = None
    duration_s: float | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """Everything that the command line says.

    Attributes:
        target: without a model where the server is to name its own.
        spec: of every cell, but for its rate and what is sent.
        rates_per_s: of open loops, of a search its highest; empty for others.
        shapes: empty where a file has lengths of its own; 0 tokens where a length is drawn.
        workers: None chooses them.
    """

    target: Target
    out: Path
    spec: CellSpec
    rates_per_s: tuple[float, ...]
    shapes: tuple[Shape, ...]
    sessions: Path | None
    prompts: Path | None
    trace: Path | None
    speed: float
    chars_per_token: float
    sweep: Sweep | None
    slo: tuple[CellLimit, ...]
    goodput: tuple[RequestLimit, ...]
    percentiles: tuple[float, ...]
    workers: int | None
    token_times: bool
    event_log: bool


class Content(NamedTuple):
    """A cell, or what all cells of one content have in common.

    Attributes:
        output_tokens: of the answers to one arrival, about: of a session all of its turns.
        trace_per_s: arrivals per second of a trace, which has no other rate.
    """

    spec: CellSpec
    output_tokens: float
    trace_per_s: float = 0.0


def contents_of(load: Load) -> tuple[Content, ...]:
    """Return one for each shape; foreign files are written into ``load.out`` in the project's own form.

    Raises:
        ConfigError: a file that cannot be read, or lengths that are none.
    """
    spec = load.spec
    output = None if spec.output_lengths is None else parse_lengths(spec.output_lengths)
    if load.prompts is not None:
        path = load.out / f"{load.prompts.stem}.prompts.jsonl"
        write_prompts(
            load.prompts,
            path,
            output_lengths=output,
            seed=spec.seed,
            chars_per_token=load.chars_per_token,
            limit=spec.num_requests,
        )
        prompts = read_prompts(path)
        check_prompts(load.prompts, prompts, spec.asked.api)
        mean = sum(p.output_tokens for p in prompts) / len(prompts)
        return (Content(replace(spec, prompts=str(path), nonce=None, output_lengths=None), mean),)
    if (source := load.trace or load.sessions) is not None:
        return (_sessions(load, source),)
    return tuple(
        Content(
            replace(spec, input_tokens=shape.input_tokens, output_tokens=shape.output_tokens),
            shape.output_tokens if output is None else output.mean,
        )
        for shape in load.shapes
    )


def _sessions(load: Load, path: Path) -> Content:
    spec = load.spec
    if load.trace is not None:
        path = load.out / f"{load.trace.stem}.sessions.jsonl"
        write_trace(load.trace, path, speed=load.speed)
    sessions = read_sessions(path)
    tokens = sum(turn.output_tokens for session in sessions for turn in session.turns) / len(sessions)
    last_s = sessions[-1].arrival_s
    if load.trace is not None:
        # A trace ends by itself, when its last request has ended.
        n = min(spec.num_requests or len(sessions), len(sessions))
        spec = replace(spec, num_requests=n, warmup_s=0.0, duration_s=0.0, min_completed=0)
    elif spec.arrival in OPEN_LOOP and last_s is not None:
        raise ConfigError(
            f"--sessions {path}: its sessions have times of their own (arrival_s), so that no rate applies."
            " Give it as --trace."
        )
    return Content(replace(spec, sessions=str(path)), tokens, len(sessions) / (last_s or 1.0))


def cell_of(content: Content, rate_per_s: float, form: RequestForm) -> Content:
    """Return one cell, but for its workers."""
    spec = content.spec
    seed = derive_seed(spec.seed, "cell", f"{rate_per_s:g}", str(spec.shape))
    form_or_none = None if form == RequestForm() else form
    return content._replace(spec=replace(spec, rate_per_s=rate_per_s, seed=seed, form=form_or_none))


def cells_of(load: Load, contents: tuple[Content, ...], form: RequestForm) -> list[Content]:
    """Return every rate at every shape; one cell where there is no rate."""
    return [cell_of(*each, form) for each in product(contents, load.rates_per_s or (0.0,))]


def workers_for(cells: list[Content], cores: tuple[Core, ...], *, asked: int | None, here: bool) -> int:
    """Return how many processes the heaviest cell wants, of those that the cores allow.

    Args:
        asked: so many of them; None chooses.
        here: the server runs on this host, and is left half of its cores.

    Raises:
        ConfigError: so many as are asked for cannot share a closed loop.
    """
    spec = cells[0].spec
    # Of a closed loop of a fixed number each worker keeps its share in flight; 0 can be shared by any number.
    fixed = spec.num_requests is not None and spec.arrival in ("concurrency", "max_throughput")
    slots = (spec.concurrency or spec.inflight_cap) if fixed else 0
    if asked is not None:
        if slots % asked:
            raise ConfigError(
                f"--workers {asked}: {slots} requests in flight (--concurrency) cannot be divided evenly"
                " among them, so a fixed number (--num-prompts) would not keep them all in flight. Give a"
                " number that divides it."
            )
        return asked
    wanted = max(
        max(_tokens_per_s(cell) / TOKENS_PER_WORKER_PER_S, in_flight(cell.spec) / IN_FLIGHT_PER_WORKER)
        for cell in cells
    )
    room = len(cores) // 2 if here else len(cores) - 1
    n = max(1, min(ceil(wanted), room, MOST_WORKERS))
    return next(k for k in range(n, 0, -1) if slots % k == 0)


def _tokens_per_s(cell: Content) -> float:
    if cell.spec.arrival in OPEN_LOOP:
        return (cell.spec.rate_per_s or cell.trace_per_s) * cell.output_tokens
    return in_flight(cell.spec) * TOKENS_PER_REQUEST_PER_S
