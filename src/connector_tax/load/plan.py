"""Turns the parsed command line of ``connector-tax load`` into a load and its cells.

Contradictory options are refused. A *request's* limit (``ttft=500ms``) decides whether that request is good,
and defines goodput. A *cell's* limit (``ttft_p90=500ms``) decides whether the server holds a rate.
"""

import argparse
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count, product
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np

from connector_tax.base.documents.load import RequestLimit
from connector_tax.base.errors import ConfigError
from connector_tax.base.files import parse_json, shown
from connector_tax.base.records.bounds import Foreign
from connector_tax.base.records.cell import CellSpec, Shape
from connector_tax.base.records.sessions import read_sessions
from connector_tax.base.records.target import RequestForm, Target, target_of
from connector_tax.base.seeds import derive_seed
from connector_tax.load.arguments import LEAST_RATE_PER_S, MOST_RATE_PER_S, SHAPE
from connector_tax.load.server import headers_of
from connector_tax.load.sources import write_prompts, write_trace
from connector_tax.run.loadgen.descriptors import Core, in_flight
from connector_tax.run.workload.arrivals import OPEN_LOOP
from connector_tax.run.workload.lengths import MOST_TOKENS, parse_lengths
from connector_tax.run.workload.prompts import check_prompts, read_prompts

Number = TypeVar("Number", int, float)
_RATES = LEAST_RATE_PER_S, MOST_RATE_PER_S
_LIST = "numbers separated by commas, such as "
NONCE_BITS = 32
# Sizes the workers of a sweep, whose rates are not known yet.
RATE_OF_A_SWEEP_PER_S = 100.0
# At most seven digits, as the renderer writes them.
MOST_TOKEN_ID = 10_000_000
# A worker takes some 65,000 tokens a second on a slow core, one read each. Above a third of that its own work
# would begin to show in its time stamps.
TOKENS_PER_WORKER_PER_S = 20_000.0
IN_FLIGHT_PER_WORKER = 2_000
# In a closed loop the server sets the rate; engines generate some 20 to 100 tokens a second per request.
TOKENS_PER_REQUEST_PER_S = 50.0
MOST_WORKERS = 16


@dataclass(frozen=True, slots=True)
class Sweep:
    """A search between two rates for the highest that meets the limits.

    Attributes:
        low_per_s: 0: a short closed loop chooses it, and the times that are None.
        precision: relative, of the rate.
    """

    low_per_s: float
    high_per_s: float
    precision: float
    warmup_s: float | None = None
    duration_s: float | None = None


class CellLimit(msgspec.Struct, frozen=True):
    """A cell meets it if percentile ``q`` of its latencies is at most ``limit_ms``."""

    metric: str
    q: float
    limit_ms: float

    def __str__(self) -> str:
        return f"{self.metric}_{percentile_name(self.q)} <= {self.limit_ms:g} ms"


@dataclass(frozen=True, slots=True)
class Load:
    """Everything that the command line asks for.

    Attributes:
        target: without a model if the server is to name its own.
        spec: common to all cells, without rate and content.
        rates_per_s: of open loops; a search's highest; empty for others.
        shapes: empty if a file gives lengths; 0 tokens if a length is drawn.
        workers: None: chosen automatically.
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


# --- The command line

# Members of the body that the client sets itself; each has its own option.
OWN_MEMBERS = {
    "model": "--model",
    "prompt": "--prompts",
    "messages": "--prompts",
    "stream": "--no-stream",
    "stream_options": "--no-stream",
    "max_tokens": "--output-length",
    "n": "nothing: one answer per request is measured",
}
# Stands for no load option.
ALONE = "a sweep (no --rates)"
_CLOSED = ("max_throughput", "offline", "concurrency")
_LOADS = (*_CLOSED, "rates", "interval", "trace", "find_rate")
# Options that need one of others.
_NEEDS = (
    ("--gamma-shape", "--arrival gamma"),
    ("--arrival gamma", "--gamma-shape"),
    ("--arrival gamma, --arrival poisson", f"--rates, --interval, --find-rate, {ALONE}"),
    ("--ramp-from", "--rates, --interval"),
    ("--ramp-from", "--ramp-up"),
    ("--ramp-up", "--concurrency, --ramp-from"),
    ("--offline", "--num-prompts"),
    ("--find-rate", "--slo"),
    ("--ca-file, --client-cert, --insecure", "https in --base-url"),
    ("--client-key", "--client-cert"),
    ("--speed", "--trace"),
    ("--precision", f"--find-rate, {ALONE}"),
    ("--chars-per-token", "--prompts"),
    ("--keep-failed-sessions", "--sessions"),
)
# Options that exclude others, and why.
_CLASHES = (
    (f"--find-rate, {ALONE}", "--num-prompts", "a fixed number of requests has no rate to hold"),
    (f"--find-rate, {ALONE}", "--shapes", "it looks for the rate of one shape, given as --shape"),
    (
        "--trace, --num-prompts",
        "--duration, --min-completed",
        "it ends the cell with its last answer, and --max-seconds bounds it",
    ),
    ("--offline", "--warmup", "all of its requests are sent at once"),
    ("--sessions", "--max-throughput, --offline", "sessions come at --rates or a --concurrency"),
    ("--trace", "--sessions, --prompts", "it says itself what is sent"),
    ("--sessions, --prompts, --trace", "--input-length, --text", "the file says what is sent"),
    ("--sessions, --trace", "--output-length", "the file says how long answers are"),
    ("--sessions", "--honor-eos", "its turns have the lengths that the file says"),
    (
        "--sessions, --trace",
        "--api chat",
        "conversations and traces are sent as token ids, which only completions take",
    ),
    (
        "--sessions, --trace",
        "--no-stream",
        "conversations need the answers' token ids, which come in a stream",
    ),
    (
        "--no-stream",
        "--slo of ttft, --slo of tpot, --slo of itl, --goodput of ttft, --goodput of tpot",
        "answers in one piece have no TTFT, TPOT or ITL; give e2e",
    ),
    ("--no-token-times", "--slo of itl", "ITL needs the times of all tokens"),
)


def load_of(args: argparse.Namespace) -> Load:
    """Return the load that the command line asks for.

    Raises:
        ConfigError: arguments contradict each other, or a value is invalid.
    """
    if args.base_url is None:
        raise ConfigError(
            "--base-url (or --target) is missing. Give the server's http://host:port, or --demo."
        )
    target = target_of(
        args.base_url,
        args.model or "",
        headers=headers_of(args.header, args.api_key_env),
        ca_file=args.ca_file,
        verify=not args.insecure,
        client_cert=args.client_cert,
        client_key=args.client_key,
    )
    slo, goodput = parse_slo(args.slo), parse_goodput(args.goodput)
    is_sweep = all(getattr(args, name) in (None, False) for name in _LOADS)
    shapes = _shapes(args)
    _check_combinations(
        {
            *((ALONE,) * is_sweep),
            *(("--shapes",) * (len(shapes) > 1)),
            *(f"--{name.replace('_', '-')}" for name, value in vars(args).items() if value),
            f"--api {args.api}",
            f"--arrival {args.arrival}",
            *(f"--slo of {limit.metric}" for limit in slo),
            *(f"--goodput of {limit.metric}" for limit in goodput),
            "https in --base-url" if target.tls else "",
        }
    )
    for text in filter(None.__ne__, (args.input_length, args.output_length)):
        parse_lengths(text)
    finite = args.num_prompts is not None
    low, high = _range("--token-ids", args.token_ids, "such as 1000,100000", int, 0, MOST_TOKEN_ID, ",")
    percentiles = _numbers(
        "--percentiles", args.percentiles.replace("p", ""), f"{_LIST}50,90,99", float, 1e-9, 100 - 1e-9
    )
    rates, sweep = _rates(args), None
    if args.find_rate is not None:
        expected = "in requests per second, such as 0.5:64"
        ends = _range("--find-rate", args.find_rate, expected, float, *_RATES, ":")
        rates, sweep = ends[1:], Sweep(*ends, _given_or(args.precision, 0.05))
    elif is_sweep:
        rates = (RATE_OF_A_SWEEP_PER_S,)
        sweep = Sweep(0.0, MOST_RATE_PER_S, _given_or(args.precision, 0.25), args.warmup, args.duration)
    spec = CellSpec(
        phase="a",
        rate_per_s=0.0,
        input_tokens=0,
        output_tokens=0,
        arrival=next((name for name in _CLOSED if getattr(args, name)), args.arrival),
        warmup_s=_given_or(args.warmup, 0.0 if finite else 10.0),
        duration_s=0.0 if finite else _given_or(args.duration, 60.0),
        min_completed=0 if finite else _given_or(args.min_completed, 200),
        max_cell_s=args.max_seconds,
        drain_timeout_s=args.drain_timeout,
        inflight_cap=args.inflight_cap,
        seed=args.seed,
        token_id_low=low,
        token_id_high=high,
        gamma_shape=args.gamma_shape,
        concurrency=args.concurrency,
        ramp_up_s=args.ramp_up,
        keep_failed_sessions=args.keep_failed_sessions or None,
        # The server's prefix cache may still hold what an earlier run with this seed sent.
        nonce=_given_or(args.nonce, secrets.randbits(NONCE_BITS)),
        num_requests=args.num_prompts,
        ramp_from_per_s=args.ramp_from,
        input_lengths=args.input_length,
        output_lengths=args.output_length,
        form=RequestForm(
            api=args.api,
            stream=not args.no_stream,
            honor_eos=args.honor_eos,
            body=_body(args),
            timeout_s=args.request_timeout,
            words=args.text,
        ),
    )
    return Load(
        target=target,
        out=args.out or next(p for n in count(1) if not (p := Path(f"load-{n}")).exists()),
        spec=spec,
        rates_per_s=rates,
        shapes=shapes,
        sessions=args.sessions,
        prompts=args.prompts,
        trace=args.trace,
        speed=args.speed or 1.0,
        chars_per_token=args.chars_per_token or 4.0,
        sweep=sweep,
        slo=slo,
        goodput=goodput,
        percentiles=tuple(sorted({*percentiles, *(limit.q for limit in slo)})),
        workers=args.workers,
        token_times=not args.no_token_times and not args.no_stream,
        event_log=args.event_log,
    )


def _check_combinations(given: set[str]) -> None:
    for options, needed in _NEEDS:
        for option in given.intersection(options.split(", ")):
            if given.isdisjoint(needed.split(", ")):
                raise ConfigError(f"{needed.replace(', ', ' or ')} is missing beside {option}.")
    for options, others, why in _CLASHES:
        for option, other in product(*(given.intersection(names.split(", ")) for names in (options, others))):
            raise ConfigError(f"{option} does not go with {other}: {why}. Leave one of them out.")


def _rates(args: argparse.Namespace) -> tuple[float, ...]:
    if args.interval is not None:
        return (1 / args.interval,)
    if args.rates is None:
        return ()
    rates = _numbers("--rates", args.rates, f"{_LIST}0.5,1,2", float, *_RATES)
    # Rates that print alike would share a cell's name and file.
    if len({f"{rate:g}" for rate in rates}) < len(rates):
        raise ConfigError(f"--rates {args.rates}: one of them stands there twice.")
    return rates


def _shapes(args: argparse.Namespace) -> tuple[Shape, ...]:
    if any(source is not None for source in (args.sessions, args.prompts, args.trace)):
        return ()
    shapes_text = _given_or(args.shape, SHAPE)
    expected = "INPUTxOUTPUT in tokens, such as 4096x256"
    # A drawn length replaces the shape's.
    keeps_length = [int(text is None) for text in (args.input_length, args.output_length)]
    shapes = []
    for part in shapes_text.split(",") if "x" in shapes_text else [shapes_text.replace(",", "x")]:
        n_input, n_output = _numbers("shape", part, expected, int, 1, MOST_TOKENS, by="x", n=2)
        shapes.append(Shape(n_input * keeps_length[0], n_output * keeps_length[1]))
    if len(set(shapes)) < len(shapes):
        raise ConfigError(f"--shapes {shapes_text}: two of them are the same load. Leave one out.")
    return tuple(shapes)


def _numbers(
    option: str,
    text: str,
    expected: str,
    kind: Callable[[str], Number],
    least: float,
    most: float,
    *,
    by: str = ",",
    n: int | None = None,
) -> tuple[Number, ...]:
    """Parse the numbers of a text, exactly ``n`` if given."""
    try:
        numbers = tuple(kind(part) for part in text.split(by))
    except ValueError:
        numbers = ()
    if (
        not numbers
        or (n or len(numbers)) != len(numbers)
        or not all(least <= number <= most for number in numbers)
    ):
        raise ConfigError(f"{option} {shown(text)}: give {expected}; each from {least:,g} to {most:,.10g}.")
    return numbers


def _range(
    option: str, text: str, expected: str, kind: Callable[[str], Number], least: float, most: float, by: str
) -> tuple[Number, Number]:
    low, high = _numbers(option, text, f"LOW{by}HIGH {expected}", kind, least, most, by=by, n=2)
    if low >= high:
        raise ConfigError(f"{option} {text}: give LOW{by}HIGH with LOW < HIGH.")
    return low, high


def _body(args: argparse.Namespace) -> Foreign:
    try:
        # The value is sent as JSON again, so infinity (1e999), lone surrogates and endless nesting are
        # refused.
        extra = {} if args.extra_body is None else parse_json(args.extra_body.encode())
    except ValueError as error:
        raise ConfigError(
            f"--extra-body: not JSON ({error}). Give an object, such as '{{\"min_p\": 0.1}}'."
        ) from error
    if not isinstance(extra, dict):
        raise ConfigError("--extra-body: not a JSON object. Give one, such as '{\"min_p\": 0.1}'.")
    for name in OWN_MEMBERS.keys() & extra:
        raise ConfigError(f"--extra-body: {name} is the client's own; use {OWN_MEMBERS[name]}.")
    sampling = {name: getattr(args, name) for name in ("temperature", "top_p", "top_k")}
    return {**{name: value for name, value in sampling.items() if value is not None}, **extra}


def _given_or(given: Any, otherwise: Any) -> Any:
    return otherwise if given is None else given


# --- Limits

_UNITS_MS = {"us": 0.001, "ms": 1.0, "s": 1000.0}
# Percentiles and times are above 0.
_ABOVE_0 = r"(?=[0.]*[1-9])"
_TIME = rf"={_ABOVE_0}(?P<time>[0-9]{{1,12}}(\.[0-9]{{1,12}})?)(?P<unit>us|ms|s)"
_OF_A_REQUEST = r"(?P<metric>ttft|tpot|e2e)" + _TIME
_OF_A_CELL = rf"(?P<metric>ttft|tpot|itl|e2e)_p(?P<q>{_ABOVE_0}[0-9]{{1,2}}(\.[0-9]{{1,3}})?)" + _TIME


def percentile_name(q: float) -> str:
    """Format ``p99.99999`` with the fewest digits that identify the percentile."""
    return f"p{np.format_float_positional(q, trim='-')}"


def parse_goodput(text: str | None) -> tuple[RequestLimit, ...]:
    """Parse ``"ttft=500ms,tpot=50ms"``.

    Raises:
        ConfigError: not such limits.
    """
    expected = "ttft, tpot or e2e with a time and its unit, each once: ttft=500ms,tpot=50ms"
    limits = _limits("--goodput", text, _OF_A_REQUEST, expected)
    return tuple(RequestLimit(match["metric"], limit_ms) for match, limit_ms in limits)


def parse_slo(text: str | None) -> tuple[CellLimit, ...]:
    """Parse ``"ttft_p90=500ms,tpot_p90=50ms"``.

    Raises:
        ConfigError: not such limits.
    """
    expected = (
        "percentiles of ttft, tpot, itl or e2e with a time and its unit, each once:"
        " ttft_p90=500ms,tpot_p90=50ms"
    )
    limits = _limits("--slo", text, _OF_A_CELL, expected)
    return tuple(CellLimit(match["metric"], float(match["q"]), limit_ms) for match, limit_ms in limits)


def _limits(option: str, text: str | None, pattern: str, expected: str) -> list[tuple[re.Match[str], float]]:
    limits: dict[str, tuple[re.Match[str], float]] = {}
    for part in () if text is None else map(str.strip, text.split(",")):
        match, name = re.fullmatch(pattern, part), part.partition("=")[0]
        if match is None or name in limits:
            raise ConfigError(f"{option} {shown(text)}: {part!r} is no such limit. Give {expected}.")
        limits[name] = match, float(match["time"]) * _UNITS_MS[match["unit"]]
    return list(limits.values())


# --- Cells


class Content(NamedTuple):
    """A cell, or what all cells with the same content share.

    Attributes:
        output_tokens: approximate, per arrival: for a session the sum of its turns.
        trace_per_s: a trace's arrivals per second; it has no other rate.
    """

    spec: CellSpec
    output_tokens: float
    trace_per_s: float = 0.0


def contents_of(load: Load) -> tuple[Content, ...]:
    """Return one content per shape; foreign files are converted to the project's form in ``load.out``.

    Raises:
        ConfigError: a file cannot be read, or lengths are invalid.
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
        # A trace ends with its last request.
        n = min(spec.num_requests or len(sessions), len(sessions))
        spec = replace(spec, num_requests=n, warmup_s=0.0, duration_s=0.0, min_completed=0)
    elif spec.arrival in OPEN_LOOP and last_s is not None:
        raise ConfigError(
            f"--sessions {path}: its sessions have times of their own (arrival_s), so that no rate applies."
            " Give it as --trace."
        )
    return Content(replace(spec, sessions=str(path)), tokens, len(sessions) / (last_s or 1.0))


def cell_of(content: Content, rate_per_s: float, form: RequestForm) -> Content:
    """Return one cell, without its workers."""
    spec = content.spec
    seed = derive_seed(spec.seed, "cell", f"{rate_per_s:g}", str(spec.shape))
    form_or_none = None if form == RequestForm() else form
    return content._replace(spec=replace(spec, rate_per_s=rate_per_s, seed=seed, form=form_or_none))


def cells_of(load: Load, contents: tuple[Content, ...], form: RequestForm) -> list[Content]:
    """Return every content at every rate; one cell per content if there is no rate."""
    return [cell_of(*each, form) for each in product(contents, load.rates_per_s or (0.0,))]


def workers_for(cells: list[Content], cores: tuple[Core, ...], *, asked: int | None, here: bool) -> int:
    """Return how many worker processes the heaviest cell needs, as far as the cores allow.

    Args:
        asked: this many; None chooses.
        here: the server runs on this host, and keeps half of its cores.

    Raises:
        ConfigError: a closed loop cannot be divided among the workers asked for.
    """
    spec = cells[0].spec
    # In a closed loop of a fixed number each worker keeps its share in flight; 0 divides among any number.
    is_fixed = spec.num_requests is not None and spec.arrival in ("concurrency", "max_throughput")
    slots = (spec.concurrency or spec.inflight_cap) if is_fixed else 0
    if asked is not None:
        if slots % asked:
            raise ConfigError(
                f"--workers {asked}: {slots} requests in flight (--concurrency) cannot be divided evenly"
                " among them, so a fixed number (--num-prompts) would not keep them all in flight. Give a"
                " number that divides it."
            )
        return asked
    needed = max(
        max(_tokens_per_s(cell) / TOKENS_PER_WORKER_PER_S, in_flight(cell.spec) / IN_FLIGHT_PER_WORKER)
        for cell in cells
    )
    max_workers = len(cores) // 2 if here else len(cores) - 1
    n = max(1, min(ceil(needed), max_workers, MOST_WORKERS))
    return next(k for k in range(n, 0, -1) if slots % k == 0)


def _tokens_per_s(cell: Content) -> float:
    if cell.spec.arrival in OPEN_LOOP:
        return (cell.spec.rate_per_s or cell.trace_per_s) * cell.output_tokens
    return in_flight(cell.spec) * TOKENS_PER_REQUEST_PER_S
