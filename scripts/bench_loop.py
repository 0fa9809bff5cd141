"""Open-loop load against any OpenAI-compatible server: one cell per rate, or per shape.

bench_loop.py --base-url http://127.0.0.1:8000 --model m --rates 0.5,1,2 --shape 4096,256 --out out/
"""

import argparse
from pathlib import Path

from connector_tax.doors import run_door
from connector_tax.loadgen.standalone import bench, parse_rates, settings_of, shapes_of


def main() -> None:
    formatter = argparse.ArgumentDefaultsHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    parser.add_argument("--base-url", required=True, help="http://host:port")
    parser.add_argument("--model", required=True, help="the name the server serves")
    parser.add_argument("--out", type=Path, required=True, help="folder for requests and summary.json")
    rates = parser.add_mutually_exclusive_group(required=True)
    rates.add_argument("--rates", help="requests per second, comma-separated: 0.5,1,2")
    rates.add_argument("--rate", help="one rate, for several shapes")
    rates.add_argument("--concurrency", type=int, help="closed loop: this many requests in flight")
    rates.add_argument("--max-throughput", action="store_true", help="closed loop at the in-flight cap")
    shapes = parser.add_mutually_exclusive_group()
    shapes.add_argument("--shape", default="4096,256", help="input,output tokens")
    shapes.add_argument("--shapes", help="comma-separated: 512x64,512x256")
    shapes.add_argument("--sessions", type=Path, help="conversations (JSONL) at --rate or --concurrency")
    shapes.add_argument("--prompts", type=Path, help="prompts with output lengths (JSONL), in order")
    parser.add_argument("--keep-failed-sessions", action="store_true", help="go on after a failed turn")
    parser.add_argument("--duration", type=float, default=60, help="seconds of window at least")
    parser.add_argument("--min-completed", type=int, default=200, help="requests of the window at least")
    parser.add_argument("--warmup", type=float, default=10, help="seconds, not counted")
    parser.add_argument("--max-cell", type=float, default=900, help="seconds a cell may take")
    parser.add_argument("--drain-timeout", type=float, default=120, help="seconds for what is in flight")
    parser.add_argument("--inflight-cap", type=int, default=256, help="arrivals beyond it are dropped")
    parser.add_argument("--arrival", choices=["fixed", "poisson", "gamma"], default="fixed")
    parser.add_argument("--gamma-shape", type=float, help="for --arrival gamma: above 1 more regular")
    parser.add_argument("--ramp-up", type=float, help="seconds until --concurrency is reached, linearly")
    parser.add_argument("--workers", type=int, default=1, help="load-generator processes")
    parser.add_argument("--event-log", action="store_true", help="write every event to OUT/events_*.jsonl")
    parser.add_argument("--seed", type=int, default=0, help="of the schedule")
    parser.add_argument("--nonce", type=int, help="of the prompts; by default each run has new ones")
    parser.add_argument("--token-ids", default="1000,100000", help="range that prompts draw from: low,high")
    args = parser.parse_args()
    bench(
        base_url=args.base_url,
        model=args.model,
        out=args.out,
        rates_per_s=parse_rates(args.rates or args.rate) if args.rates or args.rate else [0.0],
        shapes=shapes_of(args),
        token_ids=args.token_ids,
        seed=args.seed,
        event_log=args.event_log,
        settings=settings_of(args),
    )


if __name__ == "__main__":
    run_door(main, interrupted="what was measured is in --out")
