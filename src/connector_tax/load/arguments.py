"""The command line of ``connector-tax load``: what may be said."""

import argparse
import math
from collections.abc import Callable
from pathlib import Path

# Of a server's key, where no other variable is named.
DEFAULT_KEY = "OPENAI_API_KEY"
AUTO = None
# A gap of eleven days; and more than all workers that may be asked for can send.
LEAST_RATE_PER_S, MOST_RATE_PER_S = 1e-6, 1e5
# Two years; times are added up in 64 bits of nanoseconds.
MOST_SECONDS = 63_072_000.0
MOST_SEED = 2**63 - 1
MOST_REQUESTS = 10**9
MOST_IN_FLIGHT = 10**6
# By name; chosen by themselves they are fewer.
MOST_ASKED_WORKERS = 64
# Of a gamma process: beyond them every arrival is due at once, or the process is a fixed one.
GAMMA_SHAPES = 0.01, 10_000.0

EXAMPLES = """
examples:
  connector-tax load --base-url http://127.0.0.1:8000 --rates 0.5,1,2 --shape 4096,256 --out out/
  connector-tax load --base-url https://host/v1 --api chat --concurrency 64 --num-prompts 1000 --out out/
  connector-tax load --base-url ... --rate 4 --input-length lognormal:1024,800 --output-length uniform:50,400 --out out/
  connector-tax load --base-url ... --find-rate 0.5:64 --slo ttft_p90=500ms,tpot_p90=50ms --out out/
  connector-tax load --base-url ... --offline --num-prompts 500 --prompts ShareGPT.json --out out/
  connector-tax load --base-url ... --trace azure.csv --speed 2 --out out/
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """All of them, in groups."""
    server = parser.add_argument_group("server")
    server.add_argument(
        "--base-url", required=True, help="http(s)://host:port, with a path and /v1 or without"
    )
    server.add_argument("--model", help="the name the server serves; may be left out where it serves one")
    server.add_argument("--api", choices=["completions", "chat"], default="completions", help="endpoint")
    server.add_argument(
        "--api-key-env",
        metavar="NAME",
        help=f"variable that holds the server's key (default: {DEFAULT_KEY}, if set)",
    )
    server.add_argument(
        "--header", action="append", default=[], metavar="NAME:VALUE", help="further header; may be repeated"
    )
    server.add_argument("--ca-file", help="file of certificates to verify the server with")
    server.add_argument("--client-cert", metavar="<file>", help="certificate to show to the server (PEM)")
    server.add_argument(
        "--client-key",
        # Another word behind an option of that name would be taken for a secret, and blanked.
        metavar="<file>",
        help="its key (PEM, without a password), if in a file of its own",
    )
    server.add_argument("--insecure", action="store_true", help="take any certificate")

    load = parser.add_argument_group("load").add_mutually_exclusive_group(required=True)
    load.add_argument("--rates", help="open loop: requests per second, comma-separated: 0.5,1,2")
    load.add_argument("--rate", help="open loop: one rate")
    load.add_argument(
        "--interval",
        dest="rate",
        type=_interval,
        metavar="S",
        help="open loop: S seconds from one send to the next, which is a rate of 1 / S",
    )
    load.add_argument(
        "--concurrency", type=_number(int, 1, MOST_IN_FLIGHT), help="closed loop: so many requests in flight"
    )
    load.add_argument("--max-throughput", action="store_true", help="closed loop at the in-flight cap")
    load.add_argument("--offline", action="store_true", help="all of --num-prompts at once")
    load.add_argument(
        "--trace", type=Path, help="arrivals and lengths of a trace: Mooncake (JSONL) or Azure (CSV)"
    )
    load.add_argument(
        "--find-rate", metavar="LOW:HIGH", help="the highest rate that holds --slo, by bisection"
    )

    pattern = parser.add_argument_group("arrivals")
    pattern.add_argument(
        "--arrival",
        choices=["fixed", "poisson", "gamma"],
        default="fixed",
        help="how requests of an open loop follow one another (default: %(default)s)",
    )
    pattern.add_argument(
        "--gamma-shape",
        type=_number(float, *GAMMA_SHAPES),
        help="for --arrival gamma; above 1 arrivals are more regular than poisson",
    )
    pattern.add_argument(
        "--ramp-up",
        type=_seconds(),
        metavar="S",
        help="seconds until --concurrency, or --rate from --ramp-from, is reached",
    )
    pattern.add_argument(
        "--ramp-from", type=_rate, metavar="RATE", help="the rate with which --ramp-up begins"
    )
    pattern.add_argument(
        "--speed",
        type=_number(float, 1e-6, 1e6),
        default=1.0,
        help="plays a trace so many times as fast (default: %(default)g)",
    )
    pattern.add_argument(
        "--inflight-cap",
        type=_number(int, 1, MOST_IN_FLIGHT),
        default=256,
        help="arrivals of an open loop beyond so many in flight are dropped (default: %(default)d)",
    )

    prompts = parser.add_argument_group("prompts and answers")
    shapes = prompts.add_mutually_exclusive_group()
    shapes.add_argument("--shape", default="4096,256", help="input,output tokens (default: %(default)s)")
    shapes.add_argument("--shapes", help="several: 512x64,512x256")
    shapes.add_argument("--sessions", type=Path, help="conversations (JSONL)")
    shapes.add_argument(
        "--prompts", type=Path, help="prompts: ShareGPT, JSONL with prompt or messages, or text"
    )
    prompts.add_argument(
        "--input-length",
        metavar="DIST",
        help="lengths in place of a shape's: 512, uniform:A,B, normal:M,SD, lognormal:M,SD, file:F",
    )
    prompts.add_argument(
        "--output-length", metavar="DIST", help="likewise, also for prompts of a file that says no length"
    )
    prompts.add_argument(
        "--honor-eos", action="store_true", help="let the model end answers (else ignore_eos)"
    )
    prompts.add_argument(
        "--no-stream", action="store_true", help="answers in one piece: no TTFT, TPOT and ITL"
    )
    prompts.add_argument(
        "--text", action="store_true", help="words in place of token ids, also for completions"
    )
    prompts.add_argument(
        "--temperature", type=_number(float, 0, 1e6), default=0.0, help="default: %(default)g"
    )
    prompts.add_argument("--top-p", type=_number(float, None, 1.0), help="above 0, at most 1")
    prompts.add_argument("--top-k", type=_number(int, -1, MOST_REQUESTS), help="-1 means all tokens")
    prompts.add_argument("--extra-body", metavar="JSON", help="further members of every request")
    prompts.add_argument(
        "--token-ids",
        default="1000,30000",
        help="range that prompts draw from: low,high (default: %(default)s)",
    )
    prompts.add_argument("--keep-failed-sessions", action="store_true", help="go on after a failed turn")
    prompts.add_argument(
        "--chars-per-token",
        type=_number(float, 0.01, 1000.0),
        default=4.0,
        help="characters per token of ShareGPT answers, to tell their length (default: %(default)g)",
    )

    length = parser.add_argument_group("how long")
    length.add_argument(
        "--num-prompts",
        type=_number(int, 1, MOST_REQUESTS),
        metavar="N",
        help="send so many requests (or sessions), then end",
    )
    length.add_argument(
        "--duration", type=_seconds(0), metavar="S", help="shortest window in seconds (default: 60)"
    )
    length.add_argument(
        "--min-completed",
        type=_number(int, 0, MOST_REQUESTS),
        metavar="N",
        help="fewest completed requests of the window (default: 200)",
    )
    length.add_argument(
        "--warmup",
        type=_seconds(0),
        metavar="S",
        help="seconds before the window, which do not count (default: 10; 0 with --num-prompts)",
    )
    length.add_argument(
        "--max-seconds",
        "--max-cell",
        type=_seconds(),
        default=900,
        metavar="S",
        help="longest time of a cell (default: %(default)d)",
    )
    length.add_argument(
        "--drain-timeout",
        type=_seconds(0),
        default=120,
        metavar="S",
        help="longest wait for requests in flight at the end (default: %(default)d)",
    )
    length.add_argument(
        "--request-timeout",
        type=_seconds(),
        metavar="S",
        help="give up a request that takes longer (default: never)",
    )

    wanted = parser.add_argument_group("what is wanted")
    wanted.add_argument("--slo", help="limits of a cell: ttft_p90=500ms,tpot_p90=50ms")
    wanted.add_argument("--goodput", help="limits of a good request: ttft=500ms,tpot=50ms,e2e=10s")
    wanted.add_argument(
        "--percentiles", default="50,90,99", help="percentiles of every latency (default: %(default)s)"
    )
    wanted.add_argument(
        "--precision", default="5%", help="how exactly --find-rate has to find the rate (default: 5%%)"
    )

    output = parser.add_argument_group("output")
    output.add_argument(
        "--out",
        type=_folder,
        required=True,
        help="folder for requests, summary.json, summary.csv and load.html",
    )
    output.add_argument("--event-log", action="store_true", help="write every event to OUT/events_*.jsonl")
    output.add_argument("--no-token-times", action="store_true", help="no ITL; less work per token")
    output.add_argument(
        "--workers", type=_workers, default=AUTO, help="load-generator processes, or auto (default)"
    )
    output.add_argument(
        "--seed", type=_number(int, 0, MOST_SEED), default=0, help="of the schedule (default: %(default)d)"
    )
    output.add_argument(
        "--nonce", type=_number(int, 0, MOST_SEED), help="of the prompts; by default each run has new ones"
    )


def _workers(text: str) -> int | None:
    if text == "auto":
        return AUTO
    return int(_number(int, 1, MOST_ASKED_WORKERS)(text))


def _seconds(least: float | None = None) -> Callable[[str], float]:
    return _number(float, least, MOST_SECONDS)


def _interval(text: str) -> str:
    return repr(1 / _seconds()(text))


def _rate(text: str) -> float:
    return _number(float, LEAST_RATE_PER_S, MOST_RATE_PER_S)(text)


def _folder(text: str) -> Path:
    if not text:
        raise argparse.ArgumentTypeError("it names no folder")
    return Path(text)


def _number(
    kind: type[int] | type[float], least: float | None = None, most: float = math.inf
) -> Callable[[str], float]:
    """A finite number from ``least``, or above 0 where that is None, to ``most``. argparse prints what it raises."""

    def parse(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            wanted = "whole number" if kind is int else "number"
            raise argparse.ArgumentTypeError(f"{text[:40]!r} is no {wanted}") from None
        # Compared before anything else: a whole number may be too large for a float.
        if not (value > 0 if least is None else value >= least) or not value <= most or value == math.inf:
            bound = "above 0" if least is None else f"{least:,g} or more"
            upto = "" if most == math.inf else f", and at most {most:,.0f}"
            raise argparse.ArgumentTypeError(f"{text[:40]}: it has to be {bound}{upto}")
        return value

    return parse
