"""The command line of ``connector-tax load``: a table of options with their types, bounds and defaults."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from connector_tax.base.units import ratio_of

# Of a server's key, where no other variable is named.
DEFAULT_KEY = "OPENAI_API_KEY"
# A gap of eleven days; and more than all workers that may be asked for can send.
LEAST_RATE_PER_S, MOST_RATE_PER_S = 1e-6, 100_000
# Two years; times are added up in 64 bits of nanoseconds.
MOST_SECONDS = 63_072_000.0
MOST_SEED = 2**63 - 1
MOST_REQUESTS = 10**9
MOST_IN_FLIGHT = 10**6
# By name; chosen by themselves they are fewer.
MOST_ASKED_WORKERS = 64

EXAMPLES = """
examples:
  connector-tax load --base-url http://127.0.0.1:8000 --rates 0.5,1,2 --shape 4096,256 --out out/
  connector-tax load --base-url https://host/v1 --api chat --concurrency 64 --num-prompts 1000 --out out/
  connector-tax load --base-url ... --rate 4 --input-length lognormal:1024,800 --output-length uniform:50,400 --out out/
  connector-tax load --base-url ... --find-rate 0.5:64 --slo ttft_p90=500ms,tpot_p90=50ms --out out/
  connector-tax load --base-url ... --offline --num-prompts 500 --prompts ShareGPT.json --out out/
  connector-tax load --base-url ... --trace azure.csv --speed 2 --out out/
"""


def number(kind: Callable[[str], float], least: float | None, most: float) -> Callable[[str], float]:
    """Return a parser of numbers from ``least``, or above 0 where that is None, to ``most``. argparse prints what it raises."""

    def parse(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            wanted = "whole number" if kind is int else "number"
            raise argparse.ArgumentTypeError(f"{text[:40]!r} is no {wanted}") from None
        # Compared before anything else: a whole number may be too large for a float.
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

# Of these groups one option may be given, or has to be.
_ONE_OF = {"load (one of)": True, "what is sent (one of)": False}
# Group -> options: names=METAVAR; the type, the choices, or bool for a switch; the default, [] for what may be repeated, and ... for what
# has to be given; help. Another metavar behind --client-key would be taken for a secret, and blanked.
_OPTIONS: dict[str, list[tuple[str, Any, Any, str]]] = {
    "server": [
        ("--base-url", str, ..., "http(s)://host:port, with a path and /v1 or without"),
        ("--model", str, None, "the name the server serves; may be left out where it serves one"),
        ("--api", ("completions", "chat"), "completions", "endpoint"),
        (
            "--api-key-env=NAME",
            str,
            None,
            f"variable that holds the server's key (default: {DEFAULT_KEY}, if set)",
        ),
        ("--header=NAME:VALUE", str, [], "further header; may be repeated"),
        ("--ca-file", str, None, "file of certificates to verify the server with"),
        ("--client-cert=<file>", str, None, "certificate to show to the server (PEM)"),
        ("--client-key=<file>", str, None, "its key (PEM, without a password), if in a file of its own"),
        ("--insecure", bool, False, "take any certificate"),
    ],
    "load (one of)": [
        ("--rates", str, None, "open loop: requests per second, comma-separated: 0.5,1,2"),
        ("--rate", str, None, "open loop: one rate"),
        (
            "--interval=S",
            number(float, 1 / MOST_RATE_PER_S, 1 / LEAST_RATE_PER_S),
            None,
            "open loop: S seconds from one send to the next, which is a rate of 1 / S",
        ),
        ("--concurrency", _IN_FLIGHT, None, "closed loop: so many requests in flight"),
        ("--max-throughput", bool, False, "closed loop at the in-flight cap"),
        ("--offline", bool, False, "all of --num-prompts at once"),
        ("--trace", Path, None, "arrivals and lengths of a trace: Mooncake (JSONL) or Azure (CSV)"),
        ("--find-rate=LOW:HIGH", str, None, "the highest rate that holds --slo, by bisection"),
    ],
    "arrivals": [
        (
            "--arrival",
            ("fixed", "poisson", "gamma"),
            "fixed",
            "how requests of an open loop follow one another (default: %(default)s)",
        ),
        # Beyond these shapes every arrival is due at once, or the process is a fixed one.
        (
            "--gamma-shape",
            number(float, 0.01, 10_000),
            None,
            "for --arrival gamma; above 1 arrivals are more regular than poisson",
        ),
        (
            "--ramp-up=S",
            _SECONDS,
            None,
            "seconds until --concurrency, or --rate from --ramp-from, is reached",
        ),
        (
            "--ramp-from=RATE",
            number(float, LEAST_RATE_PER_S, MOST_RATE_PER_S),
            None,
            "the rate with which --ramp-up begins",
        ),
        ("--speed", number(float, 1e-6, 1e6), None, "plays a trace so many times as fast (default: 1)"),
        (
            "--inflight-cap",
            _IN_FLIGHT,
            256,
            "arrivals of an open loop beyond so many in flight are dropped (default: %(default)d)",
        ),
    ],
    "what is sent (one of)": [
        ("--shape", str, "4096,256", "input,output tokens (default: %(default)s)"),
        ("--shapes", str, None, "several: 512x64,512x256"),
        ("--sessions", Path, None, "conversations (JSONL)"),
        ("--prompts", Path, None, "prompts: ShareGPT, JSONL with prompt or messages, or text"),
    ],
    "prompts and answers": [
        (
            "--input-length=DIST",
            str,
            None,
            "lengths in place of a shape's: 512, uniform:A,B, normal:M,SD, lognormal:M,SD, file:F",
        ),
        ("--output-length=DIST", str, None, "likewise, also for prompts of a file that says no length"),
        ("--honor-eos", bool, False, "let the model end answers (else ignore_eos)"),
        ("--no-stream", bool, False, "answers in one piece: no TTFT, TPOT and ITL"),
        ("--text", bool, False, "words in place of token ids, also for completions"),
        ("--temperature", number(float, 0, 1e6), None, "default: 0"),
        ("--top-p", number(float, None, 1), None, "above 0, at most 1"),
        ("--top-k", number(int, -1, MOST_REQUESTS), None, "-1 means all tokens"),
        ("--extra-body=JSON", str, None, "further members of every request"),
        ("--token-ids", str, "1000,30000", "range that prompts draw from: low,high (default: %(default)s)"),
        ("--keep-failed-sessions", bool, False, "go on after a failed turn"),
        (
            "--chars-per-token",
            number(float, 0.01, 1000),
            4.0,
            "characters per token of ShareGPT answers, to tell their length (default: %(default)g)",
        ),
    ],
    "how long": [
        (
            "--num-prompts=N",
            number(int, 1, MOST_REQUESTS),
            None,
            "send so many requests (or sessions), then end",
        ),
        ("--duration=S", _SECONDS_OR_0, None, "shortest window in seconds (default: 60)"),
        (
            "--min-completed=N",
            number(int, 0, MOST_REQUESTS),
            None,
            "fewest completed requests of the window (default: 200)",
        ),
        (
            "--warmup=S",
            _SECONDS_OR_0,
            None,
            "seconds before the window, which do not count (default: 10; 0 with --num-prompts)",
        ),
        ("--max-seconds --max-cell=S", _SECONDS, 900, "longest time of a cell (default: %(default)d)"),
        (
            "--drain-timeout=S",
            _SECONDS_OR_0,
            120,
            "longest wait for requests in flight at the end (default: %(default)d)",
        ),
        ("--request-timeout=S", _SECONDS, None, "give up a request that takes longer (default: never)"),
    ],
    "what is wanted": [
        ("--slo", str, None, "limits of a cell: ttft_p90=500ms,tpot_p90=50ms"),
        ("--goodput", str, None, "limits of a good request: ttft=500ms,tpot=50ms,e2e=10s"),
        ("--percentiles", str, "50,90,99", "percentiles of every latency (default: %(default)s)"),
        (
            "--precision",
            number(ratio_of, 0.001, 1),
            "5%",
            "how exactly --find-rate has to find the rate (default: 5%%)",
        ),
    ],
    "output": [
        ("--out", _folder, ..., "folder for requests, summary.json, summary.csv and load.html"),
        ("--event-log", bool, False, "write every event to OUT/events_*.jsonl"),
        ("--no-token-times", bool, False, "no ITL; less work per token"),
        ("--workers", _workers, None, "load-generator processes, or auto (default)"),
        ("--seed", _SEED, 0, "of the schedule (default: %(default)d)"),
        ("--nonce", _SEED, None, "of the prompts; by default each run has new ones"),
    ],
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """All of them, in groups."""
    for title, options in _OPTIONS.items():
        group: Any = parser.add_argument_group(title)
        if title in _ONE_OF:
            group = group.add_mutually_exclusive_group(required=_ONE_OF[title])
        for names, kind, default, about in options:
            flags, _, metavar = names.partition("=")
            how: dict[str, Any] = {"type": kind, "metavar": metavar or None}
            if kind is bool:
                how = {"action": "store_true"}
            elif isinstance(kind, tuple):
                how = {"choices": kind}
            elif default == []:
                how["action"] = "append"
            group.add_argument(*flags.split(), default=default, required=default is ..., help=about, **how)
