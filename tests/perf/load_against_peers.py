"""``connector-tax load`` and ``vllm bench serve`` against the same server, in turns, with the same even schedule.

    ENGINE_PYTHON=... TINY_MODEL=... .venv/bin/python tests/perf/load_against_peers.py [--rounds 3] [--rate 4] [--num-prompts 120]

Two servers: the embedded engine (its times are a model's, kept to the microsecond as far as the host lets it) and vLLM on the CPU with the
tiny model. Each round asks ours, theirs, theirs, ours. Printed are medians over rounds of TTFT and TPOT p50 of each, the difference,
and its 95 % t-interval over rounds. Run it on a quiet machine; three rounds take some ten minutes.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from scipy import stats

from connector_tax.base.config import load_campaign
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.run.engine.process import LaunchRequest, running_engine

SHAPE = (256, 32)
THEIRS = (
    "import argparse; from vllm.benchmarks.serve import add_cli_args, main; "
    "p = argparse.ArgumentParser(); add_cli_args(p); main(p.parse_args())"
)


def ours(url: str, args: argparse.Namespace, folder: Path) -> tuple[float, float]:
    command = [
        str(Path(sys.executable).parent / "connector-tax"),
        "load",
        "--base-url",
        url,
        "--rate",
        f"{args.rate:g}",
    ]
    command += [
        "--shape",
        f"{SHAPE[0]},{SHAPE[1]}",
        "--num-prompts",
        str(args.num_prompts),
        "--out",
        str(folder),
    ]
    command += ["--inflight-cap", "1024", "--token-ids", "10,500"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise SystemExit(done.stdout + done.stderr)
    (cell,) = json.loads((folder / "summary.json").read_text())["cells"]
    if set(cell["requests"]) != {"window", "ok"}:
        raise SystemExit(f"requests failed: {cell['requests']}")
    ttft, tpot = (cell["latencies"][name]["p50"]["point"] for name in ("ttft_ms", "tpot_ms"))
    return ttft, tpot


def theirs(
    url: str, served: str, args: argparse.Namespace, folder: Path, model: Path, seed: int
) -> tuple[float, float]:
    command = [
        os.environ["ENGINE_PYTHON"],
        "-c",
        THEIRS,
        "--backend",
        "openai",
        "--base-url",
        url,
        "--endpoint",
        "/v1/completions",
    ]
    command += [
        "--model",
        served,
        "--tokenizer",
        str(model),
        "--dataset-name",
        "random",
        "--random-input-len",
        str(SHAPE[0]),
    ]
    command += [
        "--random-output-len",
        str(SHAPE[1]),
        "--num-prompts",
        str(args.num_prompts),
        "--request-rate",
        f"{args.rate:g}",
        "--burstiness",
        "inf",
    ]
    command += ["--ignore-eos", "--disable-tqdm", "--save-result", "--save-detailed", "--seed", str(seed)]
    command += ["--result-filename", str(folder / "theirs.json")]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
    )
    if done.returncode:
        raise SystemExit(done.stdout[-2000:] + done.stderr[-2000:])
    found = json.loads((folder / "theirs.json").read_text())
    if found["completed"] != args.num_prompts:
        raise SystemExit(f"{found['completed']} of {args.num_prompts} requests completed")
    return found["median_ttft_ms"], found["median_tpot_ms"]


def compare(name: str, url: str, served: str, args: argparse.Namespace, model: Path) -> None:
    rows: list[tuple[tuple[float, float], tuple[float, float]]] = []
    for k in range(args.rounds):
        seen: dict[str, list[tuple[float, float]]] = {"ours": [], "theirs": []}
        for who in ("ours", "theirs", "theirs", "ours"):
            with tempfile.TemporaryDirectory() as folder:
                into = Path(folder)
                seed = 10 * k + len(seen["ours"]) + 3 * len(seen["theirs"])
                seen[who].append(
                    ours(url, args, into) if who == "ours" else theirs(url, served, args, into, model, seed)
                )
        rows += list(zip(seen["ours"], seen["theirs"], strict=True))
    for i, metric in enumerate(("TTFT p50", "TPOT p50")):
        a, b = (np.array([row[side][i] for row in rows]) for side in (0, 1))
        difference = b - a
        half = stats.t.ppf(0.975, difference.size - 1) * difference.std(ddof=1) / np.sqrt(difference.size)
        print(
            f"{name:16} {metric}  connector-tax {statistics.median(a):8.3f} ms  vllm bench serve {statistics.median(b):8.3f} ms  "
            f"theirs - ours {difference.mean():+.3f} ms [{difference.mean() - half:+.3f}, {difference.mean() + half:+.3f}]",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rate", type=float, default=4.0, help="requests per second")
    parser.add_argument("--num-prompts", type=int, default=120)
    args = parser.parse_args()
    model = Path(os.environ["TINY_MODEL"])
    for name, path in (("embedded engine", "demo.yaml"), ("vLLM on the CPU", "vllm-cpu.yaml")):
        config = load_campaign(PROJECT_ROOT / "config" / path)
        with tempfile.TemporaryDirectory() as folder:
            request = LaunchRequest(config.engine, config.connector("plain"), Path(folder), None)
            with running_engine(request) as engine:
                engine.wait_ready()
                compare(name, engine.base_url, engine.model, args, model)


if __name__ == "__main__":
    main()
