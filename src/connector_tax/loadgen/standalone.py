"""The load generator by itself, against a server that someone else runs."""

import secrets
from argparse import Namespace
from itertools import product
from pathlib import Path
from typing import Any

import httpx

from connector_tax import direct
from connector_tax.errors import ConfigError
from connector_tax.files import append_lines, write_json
from connector_tax.loadgen.cell import measure_cell
from connector_tax.loadgen.descriptors import check_limit
from connector_tax.loadgen.interrupt import heed_interrupts
from connector_tax.loadgen.pool import worker_pool
from connector_tax.loadgen.prefix_hits import cache_counters, hits_between, said_of
from connector_tax.loadgen.session import Observe
from connector_tax.records.cell import CellSpec, Shape
from connector_tax.records.sessions import read_sessions
from connector_tax.records.target import target_of
from connector_tax.redaction import excerpt
from connector_tax.seeds import derive_seed
from connector_tax.summary.cell import summarise_cell
from connector_tax.units import is_number
from connector_tax.workload.datasets import read_prompts

NONCE_BITS = 32


def parse_rates(text: str) -> list[float]:
    """``"0.5,1,2"`` to numbers.

    Raises:
        ConfigError: something in it is not a positive number.
    """
    try:
        rates = [float(part) for part in text.split(",")]
    except ValueError as error:
        raise ConfigError(f"rates {text!r}: give numbers separated by commas, such as 0.5,1,2.") from error
    if not all(0 < rate < float("inf") for rate in rates):
        raise ConfigError(f"rates {text!r}: every rate must be above 0 requests per second.")
    return rates


def shapes_of(args: Namespace) -> list[Shape]:
    """``--shapes 512x64,512x256`` or ``--shape 512,64``; one of no length where a file has lengths of its own.

    Raises:
        ConfigError: something in it is not INPUTxOUTPUT.
    """
    if args.sessions or args.prompts:
        return [Shape(0, 0)]
    text: str = args.shapes or args.shape.replace(",", "x")
    shapes = []
    for part in text.split(","):
        numbers = part.split("x")
        if len(numbers) != 2 or not all(is_number(n) and int(n) > 0 for n in numbers):
            raise ConfigError(f"shape {part!r}: give INPUTxOUTPUT in tokens, such as 4096x256.")
        shapes.append(Shape(int(numbers[0]), int(numbers[1])))
    return shapes


def settings_of(args: Namespace) -> dict[str, Any]:
    """The command line of ``bench_loop.py`` to the fields of ``CellSpec`` that all its cells share.

    Raises:
        ConfigError: a setting for another load pattern than the one chosen.
    """
    if (args.gamma_shape is not None) != (args.arrival == "gamma"):
        raise ConfigError("--gamma-shape: goes with --arrival gamma, and that with it.")
    if args.ramp_up is not None and args.concurrency is None:
        raise ConfigError("--ramp-up: goes with --concurrency.")
    pattern = {"arrival": args.arrival, "gamma_shape": args.gamma_shape}
    if args.max_throughput:
        pattern = {"arrival": "max_throughput"}
    if args.concurrency is not None:
        pattern = {"arrival": "concurrency", "concurrency": args.concurrency, "ramp_up_s": args.ramp_up}
    if args.sessions is not None:
        read_sessions(args.sessions)
        pattern["sessions"] = str(args.sessions)
    if args.prompts is not None:
        read_prompts(args.prompts)
        pattern["prompts"] = str(args.prompts)
    # The server may still have in its prefix cache what an earlier run with this seed sent.
    nonce = args.nonce if args.nonce is not None else secrets.randbits(NONCE_BITS)
    return {
        **pattern,
        "nonce": nonce if args.prompts is None else None,
        "keep_failed_sessions": args.keep_failed_sessions or None,
        "workers": args.workers,
        "warmup_s": args.warmup,
        "duration_s": args.duration,
        "min_completed": args.min_completed,
        "max_cell_s": args.max_cell,
        "drain_timeout_s": args.drain_timeout,
        "inflight_cap": args.inflight_cap,
    }


def bench(
    *,
    base_url: str,
    model: str,
    out: Path,
    rates_per_s: list[float],
    shapes: list[Shape],
    token_ids: str,
    seed: int,
    settings: dict[str, Any],
    event_log: bool = False,
) -> None:
    """Measure every rate at every shape; write requests and a summary, print one line per cell.

    Raises:
        ConfigError: the token-id range or a setting is impossible.
        KeyboardInterrupt: Ctrl-C or SIGTERM; what was measured until then is written.
    """
    low, high = _token_range(token_ids)
    observe = Observe(event_log=out if event_log else None)
    out.mkdir(parents=True, exist_ok=True)
    specs = [
        CellSpec(
            phase="a",
            rate_per_s=rate,
            input_tokens=shape.input_tokens,
            output_tokens=shape.output_tokens,
            seed=derive_seed(seed, "cell", f"{rate:g}", str(shape)),
            token_id_low=low,
            token_id_high=high,
            **settings,
        )
        for shape, rate in product(shapes, rates_per_s)
    ]
    for spec in specs:
        check_limit(spec)
    _check_server(base_url, model)
    summaries: dict[str, Any] = {}
    if settings["nonce"] is not None:
        print(
            f"prompts of nonce {settings['nonce']}: --nonce sends the same ones again, --seed the same schedule"
        )
    print(
        f"{'cell':>20} {'n':>5} {'ok':>5} {'req/s':>8} {'TTFT p50':>9} {'p90':>9} {'TPOT p50':>9} {'late p99':>9}  ms"
    )
    with heed_interrupts() as interrupt, worker_pool(settings["workers"]) as pool:
        for spec in specs:
            with interrupt.measuring():
                counters = cache_counters(base_url)
                outcome = measure_cell(
                    spec,
                    target_of(base_url, model),
                    pool=pool,
                    observe=observe,
                    should_stop=interrupt.should_stop,
                    should_abort=interrupt.should_abort,
                )
                hits = hits_between(counters, cache_counters(base_url))
                summary = summarise_cell(spec, outcome.window, outcome.requests)
                summaries[spec.cell_id] = {
                    **summary,
                    "flags": ["prefix_cache_hits"] if said_of(hits) and spec.sessions is None else [],
                    "nonce": spec.nonce,
                    "prefix_cache": hits,
                    "health": outcome.health,
                    "window": outcome.window.to_json(),
                }
                requests = out / f"requests_{spec.cell_id}.jsonl"
                requests.unlink(missing_ok=True)
                append_lines(requests, [r.to_line() for r in outcome.requests])
                write_json(out / "summary.json", summaries)
            print(_row(spec.cell_id, summary, outcome.health), flush=True)
            for reason in _reasons(outcome.health):
                print(f"{'':>20} {reason}", flush=True)
            if (said := said_of(hits)) is not None:
                new = "" if spec.sessions is not None else "; TTFT is not that of new prompts"
                print(f"{'':>20} {said}{new}", flush=True)
            interrupt.raise_if_asked()


def _check_server(base_url: str, model: str) -> None:
    """A cell takes minutes to find out what one question tells."""
    try:
        answer = direct.get(f"{base_url}/v1/models", timeout_s=10.0)
        answer.raise_for_status()
        served = direct.served_models(answer)
        if served is None:
            raise ValueError(f"not a list of models: {excerpt(answer.text, 80)!r}")
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        raise ConfigError(
            f"--base-url {base_url}: no OpenAI-compatible server answers /v1/models there "
            f"({error or type(error).__name__}). Start it first, or give its http://host:port."
        ) from error
    if model not in served:
        raise ConfigError(f"--model {model}: {base_url} serves {', '.join(served) or 'nothing'}.")


def _token_range(text: str) -> tuple[int, int]:
    numbers = text.split(",")
    if len(numbers) != 2 or not all(is_number(n) for n in numbers) or int(numbers[0]) >= int(numbers[1]):
        raise ConfigError(f"token ids {text!r}: give LOW,HIGH with LOW below HIGH, such as 1000,100000.")
    return int(numbers[0]), int(numbers[1])


def _reasons(health: dict[str, Any]) -> list[str]:
    """Why a cell is not what it was planned to be, or not to be believed."""
    aborted, given_up = health["aborted"], health["given_up"]
    return [
        *([f"ended early: {aborted}"] if aborted else []),
        *([f"given up: {given_up}"] if given_up else []),
        *health["bottleneck"],
    ]


def _row(cell_id: str, summary: dict[str, Any], health: dict[str, Any]) -> str:
    def ms(value: float | None) -> str:
        return f"{value:9.2f}" if value is not None else "        -"

    late_us = health["dispatch_lateness_us"].get("p99")
    numbers = [summary["ttft_ms"]["p50"], summary["ttft_ms"]["p90"], summary["tpot_ms"]["p50"]]
    late = ms(late_us / 1000 if late_us is not None else None)
    throughput = summary["effective_throughput_per_s"]
    return f"{cell_id:>20} {summary['n_window']:5} {summary['n_ok']:5} {throughput:8.2f} {' '.join(map(ms, numbers))} {late}"
