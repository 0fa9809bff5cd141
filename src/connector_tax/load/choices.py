"""The parsed command line of ``connector-tax load`` -> what is to be measured; what contradicts itself is
refused."""

import argparse
import secrets
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from connector_tax.base.errors import ConfigError
from connector_tax.base.files import parse_json, shown
from connector_tax.base.records.bounds import Foreign
from connector_tax.base.records.cell import CellSpec, Shape
from connector_tax.base.records.target import RequestForm, target_of
from connector_tax.load.arguments import LEAST_RATE_PER_S, MOST_RATE_PER_S, SHAPE
from connector_tax.load.plan import Load, Sweep
from connector_tax.load.server import headers_of
from connector_tax.load.slo import parse_goodput, parse_slo
from connector_tax.run.workload.lengths import MOST_TOKENS, parse_lengths

Number = TypeVar("Number", int, float)
_RATES = LEAST_RATE_PER_S, MOST_RATE_PER_S
_LIST = "numbers separated by commas, such as "
NONCE_BITS = 32
# By so many are the workers of a sweep chosen whose rates are not known yet.
RATE_OF_A_SWEEP_PER_S = 100.0
# Of seven digits, as the renderer writes them.
MOST_TOKEN_ID = 10_000_000
# Members of the body that the client has to know of; each has an option of its own.
OWN_MEMBERS = {
    "model": "--model",
    "prompt": "--prompts",
    "messages": "--prompts",
    "stream": "--no-stream",
    "stream_options": "--no-stream",
    "max_tokens": "--output-length",
    "n": "nothing: one answer per request is measured",
}
# No load is given.
ALONE = "a sweep (no --rates)"
_LOADS = ("rates", "interval", "concurrency", "max_throughput", "offline", "trace", "find_rate")
# Options that say nothing without one of others.
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
# Options that leave nothing to say to others, and why.
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
    """Return what the command line asks for.

    Raises:
        ConfigError: arguments that contradict one another, or a value that is none.
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
    slo = () if args.slo is None else parse_slo(args.slo)
    goodput = () if args.goodput is None else parse_goodput(args.goodput)
    alone = all(getattr(args, name) in (None, False) for name in _LOADS)
    shapes = _shapes(args)
    _check_combinations(
        {
            *((ALONE,) * alone),
            *(("--shapes",) * (len(shapes) > 1)),
            *(f"--{name.replace('_', '-')}" for name, value in vars(args).items() if value),
            *(f"--{name} {getattr(args, name)}" for name in ("api", "arrival")),
            *(f"--slo of {limit.metric}" for limit in slo),
            *(f"--goodput of {limit.metric}" for limit in goodput),
            "https in --base-url" if target.tls else "",
        }
    )
    for text in (args.input_length, args.output_length):
        if text is not None:
            parse_lengths(text)
    finite = args.num_prompts is not None
    low, high = _range("--token-ids", args.token_ids, "such as 1000,100000", int, 0, MOST_TOKEN_ID, ",")
    percentiles = _numbers(
        "--percentiles", args.percentiles.replace("p", ""), f"{_LIST}50,90,99", float, 1e-9, 100 - 1e-9
    )
    sweep = None
    if args.find_rate is not None:
        wanted = "in requests per second, such as 0.5:64"
        sweep = Sweep(
            *_range("--find-rate", args.find_rate, wanted, float, *_RATES, ":"), _first(args.precision, 0.05)
        )
    elif alone:
        sweep = Sweep(0.0, MOST_RATE_PER_S, _first(args.precision, 0.25), args.warmup, args.duration)
    closed = ("max_throughput", "offline", "concurrency")
    spec = CellSpec(
        phase="a",
        rate_per_s=0.0,
        input_tokens=0,
        output_tokens=0,
        arrival=next((name for name in closed if getattr(args, name)), args.arrival),
        warmup_s=_first(args.warmup, 0.0 if finite else 10.0),
        duration_s=0.0 if finite else _first(args.duration, 60.0),
        min_completed=0 if finite else _first(args.min_completed, 200),
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
        # The server may still have in its prefix cache what an earlier run with this seed sent.
        nonce=_first(args.nonce, secrets.randbits(NONCE_BITS)),
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
        rates_per_s=_rates(args)
        if sweep is None
        else (RATE_OF_A_SWEEP_PER_S if alone else sweep.high_per_s,),
        shapes=shapes,
        sessions=args.sessions,
        prompts=args.prompts,
        trace=args.trace,
        speed=args.speed or 1.0,
        chars_per_token=_first(args.chars_per_token, 4.0),
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
        for option in given.intersection(options.split(", ")):
            for other in given.intersection(others.split(", ")):
                raise ConfigError(f"{option} does not go with {other}: {why}. Leave one of them out.")


def _rates(args: argparse.Namespace) -> tuple[float, ...]:
    if args.interval is not None:
        return (1 / args.interval,)
    if args.rates is None:
        return ()
    rates = _numbers("--rates", args.rates, f"{_LIST}0.5,1,2", float, *_RATES)
    # Rates that read alike would share a cell's name and its file.
    if len({f"{rate:g}" for rate in rates}) < len(rates):
        raise ConfigError(f"--rates {args.rates}: one of them stands there twice.")
    return rates


def _shapes(args: argparse.Namespace) -> tuple[Shape, ...]:
    if args.sessions is not None or args.prompts is not None or args.trace is not None:
        return ()
    shapes = []
    given = _first(args.shape, SHAPE)
    for part in given.split(",") if "x" in given else [given.replace(",", "x")]:
        wanted = "INPUTxOUTPUT in tokens, such as 4096x256"
        tokens = _numbers("shape", part, wanted, int, 1, MOST_TOKENS, by="x", n=2)
        # What is drawn takes the place of what a shape says.
        drawn = (args.input_length, args.output_length)
        shapes.append(Shape(*(n if text is None else 0 for n, text in zip(tokens, drawn, strict=True))))
    if len(set(shapes)) < len(shapes):
        raise ConfigError(f"--shapes {given}: two of them are the same load. Leave one out.")
    return tuple(shapes)


def _numbers(
    option: str,
    text: str,
    wanted: str,
    kind: Callable[[str], Number],
    least: float,
    most: float,
    *,
    by: str = ",",
    n: int | None = None,
) -> tuple[Number, ...]:
    """Return the numbers of a text, ``n`` of them where that is given."""
    try:
        found = tuple(kind(part) for part in text.split(by))
    except ValueError:
        found = ()
    if not found or (n or len(found)) != len(found) or not all(least <= number <= most for number in found):
        raise ConfigError(f"{option} {shown(text)}: give {wanted}; each from {least:,g} to {most:,.10g}.")
    return found


def _range(
    option: str, text: str, wanted: str, kind: Callable[[str], Number], least: float, most: float, by: str
) -> tuple[Number, Number]:
    low, high = _numbers(option, text, f"LOW{by}HIGH {wanted}", kind, least, most, by=by, n=2)
    if low >= high:
        raise ConfigError(f"{option} {text}: give LOW{by}HIGH with LOW < HIGH.")
    return low, high


def _body(args: argparse.Namespace) -> Foreign:
    body = {name: getattr(args, name) for name in ("temperature", "top_p", "top_k")}
    body = {name: value for name, value in body.items() if value is not None}
    if args.extra_body is None:
        return body
    try:
        # What is sent is JSON again: no infinity (1e999), no half of a surrogate pair, no nesting without
        # end.
        extra = parse_json(args.extra_body.encode())
    except ValueError as error:
        raise ConfigError(
            f"--extra-body: not JSON ({error}). Give an object, such as '{{\"min_p\": 0.1}}'."
        ) from error
    if not isinstance(extra, dict):
        raise ConfigError("--extra-body: not a JSON object. Give one, such as '{\"min_p\": 0.1}'.")
    for name in OWN_MEMBERS.keys() & extra:
        raise ConfigError(f"--extra-body: {name} is the client's own; use {OWN_MEMBERS[name]}.")
    return {**body, **extra}


def _first(given: Any, otherwise: Any) -> Any:
    return otherwise if given is None else given
