"""The command line of ``connector-tax load``: a table of options with their types, bounds and defaults."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from connector_tax.base.command import add_options
from connector_tax.base.units import ratio_of

# Variable that holds the server's key, unless another one is named.
DEFAULT_KEY = "OPENAI_API_KEY"
# A gap of eleven days; and more than MOST_ASKED_WORKERS workers can send.
LEAST_RATE_PER_S, MOST_RATE_PER_S = 1e-6, 100_000
# Two years; times are summed in 64-bit nanoseconds.
MOST_SECONDS = 63_072_000.0
MOST_SEED = 2**63 - 1
MOST_REQUESTS = 10**9
MOST_IN_FLIGHT = 10**6
# Limit of --workers; the automatic choice stays below.
MOST_ASKED_WORKERS = 64
SHAPE = "4096,256"

EXAMPLES = """
examples:
  connector-tax load --target http://127.0.0.1:8000
  connector-tax load --target ... --rates 0.5,1,2 --shape 4096,256 --out out/
  connector-tax load --target ... --find-rate 0.5:64 --slo ttft_p90=500ms,tpot_p90=50ms --out out/
"""
BRIEF = (
    "--base-url",
    "--demo",
    "--model",
    "--rates",
    "--concurrency",
    "--find-rate",
    "--shape",
    "--prompts",
    "--out",
)


def number(kind: Callable[[str], float], least: float | None, most: float) -> Callable[[str], float]:
    """Return an argparse type for numbers from ``least`` (None: above 0) to ``most``."""

    def parse(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            wanted = "whole number" if kind is int else "number"
            raise argparse.ArgumentTypeError(f"{text[:40]!r} is no {wanted}") from None
        # The bounds are checked first: a whole number may be too large for a float.
        if not (value > 0 if least is None else value >= least) or not value <= most:
            bound = "above 0" if least is None else f"{least:,g} or more"
            raise argparse.ArgumentTypeError(f"{text[:40]}: it has to be {bound}, and at most {most:,.10g}")
        return value

    return parse


def _workers(text: str) -> float | None:
    return None if text == "auto" else number(int, 1, MOST_ASKED_WORKERS)(text)


def _folder(text: str) -> Path:
    if not text:
        raise argparse.ArgumentTypeError("it names no folder")
    return Path(text)


_IN_FLIGHT, _SEED = number(int, 1, MOST_IN_FLIGHT), number(int, 0, MOST_SEED)
_SECONDS, _SECONDS_OR_0 = number(float, None, MOST_SECONDS), number(float, 0, MOST_SECONDS)

# The options of these groups exclude each other.
_ONE_OF = ("load (one of; by default a sweep up to what the server holds)", "what is sent (one of)")
# Group -> options, as ``add_options`` takes them.
_OPTIONS: dict[str, list[tuple[Any, ...]]] = {
    "server": [
        ("--base-url --target=URL", str, "http(s)://host:port, with a path and /v1 or without"),
        ("--demo", bool, "serve the embedded engine on loopback, and load that"),
        ("--model", str, "may be left out where the server has one"),
        ("--api", ("completions", "chat"), "endpoint", "completions"),
        ("--api-key-env=NAME", str, f"variable with the server's key (default: {DEFAULT_KEY})"),
        ("--header=NAME:VALUE", str, "further header; may be repeated", []),
        ("--ca-file", str, "file of certificates to verify the server with"),
        ("--client-cert=<file>", str, "certificate to show to the server (PEM)"),
        ("--client-key=<file>", str, "its key (PEM, without a password), if apart"),
        ("--insecure", bool, "take any certificate"),
    ],
    _ONE_OF[0]: [
        ("--rates --rate", str, "open loop: requests per second, comma-separated: 0.5,1,2"),
        (
            "--interval=S",
            number(float, 1 / MOST_RATE_PER_S, 1 / LEAST_RATE_PER_S),
            "open loop: S seconds from one send to the next",
        ),
        ("--concurrency", _IN_FLIGHT, "closed loop: so many requests in flight"),
        ("--max-throughput", bool, "closed loop at the in-flight cap"),
        ("--offline", bool, "all of --num-prompts at once"),
        ("--trace", Path, "arrivals and lengths of a trace: Mooncake (JSONL) or Azure (CSV)"),
        ("--find-rate=LOW:HIGH", str, "the highest rate that holds --slo, by bisection"),
    ],
    "arrivals": [
        (
            "--arrival",
            ("fixed", "poisson", "gamma"),
            "how requests of an open loop follow one another (default: %(default)s)",
            "fixed",
        ),
        # Outside this range all arrivals are due at once, or the process is practically fixed.
        (
            "--gamma-shape",
            number(float, 0.01, 10_000),
            "for --arrival gamma; above 1 arrivals are more regular than poisson",
        ),
        ("--ramp-up=S", _SECONDS, "seconds until --concurrency or --rate is reached"),
        (
            "--ramp-from=RATE",
            number(float, LEAST_RATE_PER_S, MOST_RATE_PER_S),
            "the rate with which --ramp-up begins",
        ),
        ("--speed", number(float, 1e-6, 1e6), "of a trace (default: 1)"),
        (
            "--inflight-cap",
            _IN_FLIGHT,
            "drop open-loop arrivals beyond so many in flight (default: %(default)d)",
            256,
        ),
    ],
    _ONE_OF[1]: [
        (
            "--shape --shapes",
            str,
            f"input,output tokens, or 512x64,512x256 (default: {SHAPE})",
        ),
        ("--sessions", Path, "conversations (JSONL)"),
        ("--prompts", Path, "prompts: ShareGPT, JSONL with prompt or messages, or text"),
    ],
    "prompts and answers": [
        (
            "--input-length=DIST",
            str,
            "lengths in place of a shape's: 512, uniform:A,B, normal:M,SD, lognormal:M,SD, file:F",
        ),
        ("--output-length=DIST", str, "likewise, also for --prompts without lengths"),
        ("--honor-eos", bool, "let the model end answers (else ignore_eos)"),
        ("--no-stream", bool, "answers in one piece: no TTFT, TPOT and ITL"),
        ("--text", bool, "words in place of token ids, also for completions"),
        ("--temperature", number(float, 0, 1e6), "default: 0"),
        ("--top-p", number(float, None, 1), "above 0, at most 1"),
        ("--top-k", number(int, -1, MOST_REQUESTS), "-1 means all tokens"),
        ("--extra-body=JSON", str, "further members of every request"),
        ("--token-ids", str, "range that prompts draw from: low,high (default: %(default)s)", "1000,30000"),
        ("--keep-failed-sessions", bool, "go on after a failed turn"),
        (
            "--chars-per-token",
            number(float, 0.01, 1000),
            "of ShareGPT answers (default: 4)",
        ),
    ],
    "how long": [
        ("--num-prompts=N", number(int, 1, MOST_REQUESTS), "send N requests (or sessions), then end"),
        ("--duration=S", _SECONDS_OR_0, "shortest window in seconds (default: 60)"),
        (
            "--min-completed=N",
            number(int, 0, MOST_REQUESTS),
            "fewest completed requests of the window (default: 200)",
        ),
        (
            "--warmup=S",
            _SECONDS_OR_0,
            "seconds before the window (default: 10; 0 with --num-prompts)",
        ),
        ("--max-seconds --max-cell=S", _SECONDS, "longest time of a cell (default: %(default)d)", 900),
        (
            "--drain-timeout=S",
            _SECONDS_OR_0,
            "longest wait for requests in flight at the end (default: %(default)d)",
            120,
        ),
        ("--request-timeout=S", _SECONDS, "give up a request that takes longer (default: never)"),
    ],
    "what is wanted": [
        ("--slo", str, "limits of a cell: ttft_p90=500ms,tpot_p90=50ms"),
        ("--goodput", str, "limits of a good request: ttft=500ms,tpot=50ms,e2e=10s"),
        ("--percentiles", str, "percentiles of every latency (default: %(default)s)", "50,90,99"),
        (
            "--precision",
            number(ratio_of, 0.001, 1),
            "of --find-rate (default: 5%%)",
        ),
    ],
    "output": [
        (
            "--out",
            _folder,
            "folder (default: load-1, load-2, ...)",
        ),
        ("--event-log", bool, "write every event to OUT/events_*.jsonl"),
        ("--no-token-times", bool, "no ITL; less work per token"),
        ("--workers", _workers, "load-generator processes, or auto (default)"),
        ("--seed", _SEED, "of the schedule (default: %(default)d)", 0),
        ("--nonce", _SEED, "of the prompts; by default each run has new ones"),
    ],
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add all options to the parser, in groups."""
    for title, options in _OPTIONS.items():
        group: Any = parser.add_argument_group(title)
        if title in _ONE_OF:
            group = group.add_mutually_exclusive_group()
        add_options(group, *options)
