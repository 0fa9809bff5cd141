"""The parsed command line of ``connector-tax load`` -> what is to be measured; what contradicts itself is refused."""

import argparse
import json
import secrets
from typing import Any

from connector_tax.base.errors import ConfigError
from connector_tax.base.opening import shown
from connector_tax.base.records.bounds import Foreign
from connector_tax.base.records.cell import Shape
from connector_tax.base.records.target import RequestForm
from connector_tax.base.units import is_number, ratio_of
from connector_tax.load.arguments import LEAST_RATE_PER_S, MOST_RATE_PER_S
from connector_tax.load.plan import Load, Pattern, Sweep, Timing
from connector_tax.load.server import Access
from connector_tax.load.slo import parse_goodput, parse_slo
from connector_tax.run.workload.lengths import MOST_TOKENS, parse_lengths

NONCE_BITS = 32
# Digits that no number of tokens needs.
_DIGITS = 12
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


def load_of(args: argparse.Namespace) -> Load:
    """What the command line asks for.

    Raises:
        ConfigError: arguments that contradict one another, or a value that is none.
    """
    _check_combinations(args)
    for text in (args.input_length, args.output_length):
        if text is not None:
            parse_lengths(text)
    finite = args.num_prompts is not None
    low, high = _token_range(args.token_ids)
    return Load(
        access=Access(
            base_url=args.base_url,
            model=args.model,
            api_key_env=args.api_key_env,
            headers=tuple(args.header),
            ca_file=args.ca_file,
            insecure=args.insecure,
            client_cert=args.client_cert,
            client_key=args.client_key,
        ),
        out=args.out,
        rates_per_s=parse_rates(_first(args.rates, args.rate)) if _has_rate(args) else (),
        pattern=_pattern(args),
        shapes=_shapes(args),
        sessions=args.sessions,
        prompts=args.prompts,
        trace=args.trace,
        speed=args.speed,
        input_length=args.input_length,
        output_length=args.output_length,
        chars_per_token=args.chars_per_token,
        form=RequestForm(
            api=args.api,
            stream=not args.no_stream,
            honor_eos=args.honor_eos,
            body=_body(args),
            timeout_s=args.request_timeout,
            words=args.text,
        ),
        timing=Timing(
            num_requests=args.num_prompts,
            warmup_s=args.warmup if args.warmup is not None else 0.0 if finite else 10.0,
            duration_s=0.0 if finite else _first(args.duration, 60.0),
            min_completed=0 if finite else _first(args.min_completed, 200),
            max_cell_s=args.max_seconds,
            drain_timeout_s=args.drain_timeout,
            inflight_cap=args.inflight_cap,
        ),
        sweep=_sweep(args),
        slo=parse_slo(args.slo) if args.slo is not None else (),
        goodput=parse_goodput(args.goodput) if args.goodput is not None else (),
        percentiles=_percentiles(args.percentiles),
        workers=args.workers,
        token_ids=(low, high),
        keep_failed_sessions=args.keep_failed_sessions,
        token_times=not args.no_token_times and not args.no_stream,
        event_log=args.event_log,
        seed=args.seed,
        # The server may still have in its prefix cache what an earlier run with this seed sent.
        nonce=args.nonce if args.nonce is not None else secrets.randbits(NONCE_BITS),
    )


def parse_rates(text: str) -> tuple[float, ...]:
    """``"0.5,1,2"`` to numbers.

    Raises:
        ConfigError: something in it is not a positive number.
    """
    try:
        rates = tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise ConfigError(f"rates {text!r}: give numbers separated by commas, such as 0.5,1,2.") from error
    if not all(LEAST_RATE_PER_S <= rate <= MOST_RATE_PER_S for rate in rates):
        raise ConfigError(
            f"rates {text!r}: every rate must be from {LEAST_RATE_PER_S:g} to {MOST_RATE_PER_S:,.0f} requests per second."
        )
    if len({f"{rate:g}" for rate in rates}) < len(rates):
        raise ConfigError(f"rates {text!r}: one of them stands there twice.")
    return rates


def parse_shapes(text: str) -> tuple[Shape, ...]:
    """``512x64,512x256``.

    Raises:
        ConfigError: something in it is not INPUTxOUTPUT.
    """
    shapes = []
    for part in text.split(","):
        numbers = part.split("x")
        if len(numbers) != 2 or not all(is_number(n) and len(n) <= _DIGITS for n in numbers):
            raise ConfigError(f"shape {shown(part)}: give INPUTxOUTPUT in tokens, such as 4096x256.")
        shape = Shape(int(numbers[0]), int(numbers[1]))
        if not all(1 <= n <= MOST_TOKENS for n in (shape.input_tokens, shape.output_tokens)):
            raise ConfigError(f"shape {part!r}: both numbers are from 1 to {MOST_TOKENS:,} tokens.")
        shapes.append(shape)
    if len(set(shapes)) < len(shapes):
        raise ConfigError(f"shapes {text!r}: one of them stands there twice.")
    return tuple(shapes)


def _shapes(args: argparse.Namespace) -> tuple[Shape, ...]:
    if args.sessions is not None or args.prompts is not None or args.trace is not None:
        return ()
    shapes = parse_shapes(args.shapes if args.shapes is not None else args.shape.replace(",", "x"))
    for name, drawn, left in (
        ("--input-length", args.input_length, {s.output_tokens for s in shapes}),
        ("--output-length", args.output_length, {s.input_tokens for s in shapes}),
    ):
        if drawn is not None and len(left) < len(shapes):
            raise ConfigError(f"--shapes {args.shapes}: with {name} two of them are the same load.")
    return shapes


def _first(given: Any, otherwise: Any) -> Any:
    return otherwise if given is None else given


def _has_rate(args: argparse.Namespace) -> bool:
    return args.rates is not None or args.rate is not None


def _check_combinations(args: argparse.Namespace) -> None:
    open_loop = _has_rate(args) or args.find_rate is not None
    drawn = args.input_length is not None
    with_file = args.sessions is not None or args.prompts is not None or args.trace is not None
    for wrong, message in (
        (args.rate is not None and "," in args.rate, "--rate: takes one rate; give several as --rates."),
        (
            (args.gamma_shape is not None) != (args.arrival == "gamma"),
            "--gamma-shape: goes with --arrival gamma, and that with it.",
        ),
        (
            args.ramp_from is not None and not _has_rate(args),
            "--ramp-from: goes with --rate or --rates.",
        ),
        (
            args.ramp_from is not None and args.ramp_up is None,
            "--ramp-from: goes with --ramp-up, in how many seconds.",
        ),
        (
            args.ramp_up is not None and args.concurrency is None and args.ramp_from is None,
            "--ramp-up: goes with --concurrency, or with --ramp-from and a rate.",
        ),
        (args.arrival != "fixed" and not open_loop, f"--arrival {args.arrival}: goes with a rate."),
        (
            (args.max_throughput or args.offline) and args.sessions is not None,
            "--sessions: give --rate or --concurrency, in sessions.",
        ),
        (args.offline and args.num_prompts is None, "--offline: needs --num-prompts."),
        (
            args.find_rate is not None and args.slo is None,
            "--find-rate: needs --slo, which it is to hold.",
        ),
        (
            args.find_rate is not None and args.num_prompts is not None,
            "--find-rate: cells of a number of requests have no rate to hold; leave --num-prompts out.",
        ),
        (
            args.trace is not None and (args.duration is not None or args.min_completed is not None),
            "--trace: ends with its last answer; leave --duration and --min-completed out. --max-seconds bounds it.",
        ),
        (
            args.num_prompts is not None and (args.duration is not None or args.min_completed is not None),
            "--num-prompts: ends the cell by itself; leave --duration and --min-completed out. --max-seconds bounds it.",
        ),
        (
            args.offline and bool(args.warmup),
            "--warmup: all requests of --offline are sent at once; there is nothing before them.",
        ),
        (
            args.ca_file is not None and not args.base_url.lower().startswith("https:"),
            "--ca-file: goes with https.",
        ),
        (
            args.client_cert is not None and not args.base_url.lower().startswith("https:"),
            "--client-cert: goes with https.",
        ),
        (
            args.client_key is not None and args.client_cert is None,
            "--client-cert is missing beside --client-key.",
        ),
        (args.insecure and not args.base_url.lower().startswith("https:"), "--insecure: goes with https."),
        (args.speed != 1.0 and args.trace is None, "--speed: goes with --trace."),
        (
            args.trace is not None and (args.sessions or args.prompts),
            "--trace: has its own lengths; leave --sessions and --prompts out.",
        ),
        (drawn and with_file, "--input-length: the file has lengths of its own."),
        (
            args.output_length is not None and (args.sessions or args.trace),
            "--output-length: the file has lengths of its own.",
        ),
        (
            args.api == "chat" and (args.sessions or args.trace),
            "--api chat: conversations and traces are sent as token ids, which only completions take.",
        ),
        (
            args.no_stream and (args.sessions or args.trace),
            "--no-stream: conversations need the answers' token ids, which come in a stream.",
        ),
        (args.text and (args.sessions or args.trace or args.prompts), "--text: goes with synthetic prompts."),
        (
            args.honor_eos and args.sessions is not None,
            "--honor-eos: turns of a session have the lengths that its file says.",
        ),
        (
            args.no_stream and any(limit.metric in ("ttft", "tpot", "itl") for limit in parse_slo(args.slo))
            if args.slo is not None
            else False,
            "--slo: answers in one piece have no TTFT, TPOT or ITL; give e2e, or leave --no-stream out.",
        ),
        (
            args.no_stream and any(limit.metric != "e2e" for limit in parse_goodput(args.goodput))
            if args.goodput
            else False,
            "--goodput: answers in one piece have no TTFT or TPOT; give e2e, or leave --no-stream out.",
        ),
        (
            args.no_token_times and any(limit.metric == "itl" for limit in parse_slo(args.slo))
            if args.slo is not None
            else False,
            "--slo: ITL needs the times of all tokens; leave --no-token-times out.",
        ),
    ):
        if wrong:
            raise ConfigError(message)


def _pattern(args: argparse.Namespace) -> Pattern:
    if args.trace is not None:
        return Pattern("fixed")
    if args.max_throughput:
        return Pattern("max_throughput")
    if args.offline:
        return Pattern("offline")
    if args.concurrency is not None:
        return Pattern("concurrency", concurrency=args.concurrency, ramp_up_s=args.ramp_up)
    return Pattern(
        args.arrival,
        gamma_shape=args.gamma_shape,
        ramp_up_s=None if args.ramp_from is None else args.ramp_up,
        ramp_from_per_s=args.ramp_from,
    )


def _body(args: argparse.Namespace) -> Foreign:
    body = {"temperature": args.temperature} if args.temperature else {}
    body |= {
        name: value for name, value in (("top_p", args.top_p), ("top_k", args.top_k)) if value is not None
    }
    if args.extra_body is None:
        return body
    try:
        extra = json.loads(args.extra_body, parse_constant=_no_number)
        # What is sent is JSON again: no infinity (1e999), no half of a surrogate pair, no nesting without end.
        json.dumps(extra, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"--extra-body: not JSON ({error}). Give an object, such as '{{\"min_p\": 0.1}}'."
        ) from error
    if not isinstance(extra, dict):
        raise ConfigError("--extra-body: not a JSON object. Give one, such as '{\"min_p\": 0.1}'.")
    for name in extra:
        if name in OWN_MEMBERS:
            raise ConfigError(f"--extra-body: {name} is the client's own; use {OWN_MEMBERS[name]}.")
    return {**body, **extra}


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def _sweep(args: argparse.Namespace) -> Sweep | None:
    if args.find_rate is None:
        return None
    low, colon, high = args.find_rate.partition(":")
    try:
        first, last = float(low), float(high)
    except ValueError as error:
        raise ConfigError(
            f"--find-rate {args.find_rate!r}: give LOW:HIGH in requests per second, such as 0.5:64."
        ) from error
    # Rates that read alike would share a cell's name and its file.
    if not colon or not LEAST_RATE_PER_S <= first < last <= MOST_RATE_PER_S or f"{first:g}" == f"{last:g}":
        raise ConfigError(
            f"--find-rate {args.find_rate!r}: give LOW:HIGH with LOW < HIGH, from {LEAST_RATE_PER_S:g} to {MOST_RATE_PER_S:,.0f}, such as 0.5:64."
        )
    try:
        precision = ratio_of(args.precision)
    except ValueError as error:
        raise ConfigError(f"--precision: {error}") from error
    if precision < 0.001:
        raise ConfigError(f"--precision {args.precision}: at least 0.1%.")
    return Sweep(first, last, precision)


def _percentiles(text: str) -> tuple[float, ...]:
    try:
        found = tuple(sorted({float(part.strip().removeprefix("p")) for part in text.split(",")}))
    except ValueError as error:
        raise ConfigError(
            f"--percentiles {text!r}: give numbers separated by commas, such as 50,90,99."
        ) from error
    if not all(0 < q < 100 for q in found):
        raise ConfigError(f"--percentiles {text!r}: every one lies between 0 and 100.")
    return found


def _token_range(text: str) -> tuple[int, int]:
    numbers = text.split(",")
    if (
        len(numbers) != 2
        or not all(is_number(n) and len(n) <= _DIGITS for n in numbers)
        or int(numbers[0]) >= int(numbers[1])
    ):
        raise ConfigError(f"token ids {text!r}: give LOW,HIGH with LOW below HIGH, such as 1000,100000.")
    if int(numbers[1]) > MOST_TOKEN_ID:
        raise ConfigError(f"token ids {text!r}: {MOST_TOKEN_ID} is the highest that HIGH may be.")
    return int(numbers[0]), int(numbers[1])
