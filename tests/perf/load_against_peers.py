"""``connector-tax load`` and other load generators against the embedded engine, in turns: the same prompts, lengths and even schedule.

    .venv/bin/python tests/perf/load_against_peers.py --tokenizer FOLDER --vllm PYTHON --guidellm BIN --aiperf BIN [--rounds 3]

FOLDER holds a tokenizer, as scripts/make_model_folder.py writes one; PYTHON has vLLM and pandas; each BIN is the folder of an environment's programs. A
tool that is not given is left out. Printed are medians over rounds of TTFT p50, TPOT p50 and the processor time of the whole command,
start and tokenizing included. Run it on a quiet machine; three rounds of four tools take some eight minutes.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from connector_tax import __version__
from connector_tax.load.server import embedded_engine

WORDS, TOKENS = 256, 32
VLLM = (
    "import argparse; from vllm.benchmarks.serve import add_cli_args, main; "
    "p = argparse.ArgumentParser(); add_cli_args(p); main(p.parse_args())"
)
# TTFT p50 and TPOT p50, ms.
Found = tuple[float, float]


def said(*command: str | Path, code: tuple[int, ...] = (0,), offline: str = "1") -> str:
    alone = {**os.environ, "HF_HUB_OFFLINE": offline, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, env=alone)
    if done.returncode not in code:
        raise SystemExit(f"{command[0]}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def ours(args: argparse.Namespace, into: Path) -> Found:
    load = [
        sys.executable,
        "-m",
        "connector_tax",
        "load",
        "--base-url",
        args.base_url,
        "--prompts",
        args.data,
    ]
    load += ["--rate", f"{args.rate:g}", "--num-prompts", str(args.num_prompts), "--out", into / "out"]
    # 1: the client itself was late, which its own limits say and no peer's.
    said(*load, code=(0, 1))
    (cell,) = json.loads((into / "out" / "summary.json").read_text())["cells"]
    assert cell["requests"] == {"window": args.num_prompts, "ok": args.num_prompts}, cell["requests"]
    return tuple(cell["latencies"][name]["p50"]["point"] for name in ("ttft_ms", "tpot_ms"))


def vllm(args: argparse.Namespace, into: Path) -> Found:
    bench = [args.vllm, "-c", VLLM, "--backend", "openai", "--base-url", args.base_url]
    bench += ["--endpoint", "/v1/completions", "--model", args.model, "--tokenizer", args.tokenizer]
    bench += ["--dataset-name", "custom", "--dataset-path", args.data, "--custom-output-len", str(TOKENS)]
    bench += ["--skip-chat-template", "--disable-shuffle", "--num-prompts", str(args.num_prompts)]
    bench += ["--request-rate", f"{args.rate:g}", "--burstiness", "inf", "--ignore-eos", "--disable-tqdm"]
    said(*bench, "--save-result", "--result-filename", into / "out.json")
    found = json.loads((into / "out.json").read_text())
    assert found["completed"] == args.num_prompts
    return found["median_ttft_ms"], found["median_tpot_ms"]


def guidellm(args: argparse.Namespace, into: Path) -> Found:
    backend = f"kind=openai_http,target={args.base_url},model={args.model},request_format=/v1/completions"
    run = [Path(args.guidellm, "guidellm"), "run", "--backend", backend, "--disable-progress"]
    run += ["--profile", f"kind=constant,rate={args.rate:g}"]
    run += ["--constraint", f"kind=max_requests,count={args.num_prompts}"]
    run += ["--tokenizer", f"kind=huggingface_auto,model={args.tokenizer}"]
    said(*run, "--data", f"kind=json_file,path={args.data}", "--output", f"kind=json,path={into}/out.json")
    (benchmark,) = json.loads((into / "out.json").read_text())["benchmarks"]
    metrics = benchmark["metrics"]
    assert metrics["request_totals"]["successful"] == args.num_prompts, metrics["request_totals"]
    names = ("time_to_first_token_ms", "inter_token_latency_ms")
    return tuple(metrics[name]["successful"]["median"] for name in names)


def aiperf(args: argparse.Namespace, into: Path) -> Found:
    run = [Path(args.aiperf, "aiperf"), "profile", "--model", args.model, "--url", args.base_url]
    run += ["--endpoint-type", "completions", "--streaming", "--tokenizer", args.tokenizer, "--ui", "none"]
    run += ["--use-server-token-count"]
    run += ["--input-file", args.data, "--custom-dataset-type", "single_turn", "--osl", str(TOKENS)]
    run += ["--extra-inputs", "ignore_eos:true", "--no-gpu-telemetry", "--arrival-pattern", "constant"]
    run += ["--request-rate", f"{args.rate:g}", "--request-count", str(args.num_prompts)]
    # Offline it takes a tokenizer's folder for a name of the hub.
    said(*run, "--output-artifact-dir", into, offline="")
    (file,) = into.rglob("profile_export_aiperf.json")
    found: dict[str, Any] = json.loads(file.read_text())
    assert found["request_count"]["avg"] == args.num_prompts
    return found["time_to_first_token"]["p50"], found["inter_token_latency"]["p50"]


def versions(args: argparse.Namespace) -> dict[str, str]:
    """Of each tool that was given."""
    known = {"connector-tax load": __version__}
    for name, python in (
        ("vllm bench serve", args.vllm),
        ("guidellm", args.guidellm and Path(args.guidellm, "python")),
        ("aiperf", args.aiperf and Path(args.aiperf, "python")),
    ):
        package = "vllm" if "vllm" in name else name
        ask = f"import importlib.metadata as m; print(next(m.version(p) for p in ('{package}-cpu', '{package}') if p in m.packages_distributions().get('{package}', ())))"
        if python:
            known[name] = said(python, "-c", ask).strip()
    return known


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("--tokenizer", "--vllm", "--guidellm", "--aiperf"):
        parser.add_argument(name)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rate", type=float, default=8.0, help="requests per second")
    parser.add_argument("--num-prompts", type=int, default=160)
    args = parser.parse_args()
    args.base_url = args.shape = None
    tools: dict[str, Callable[[argparse.Namespace, Path], Found]] = {
        "connector-tax load": ours,
        "vllm bench serve": vllm,
        "guidellm": guidellm,
        "aiperf": aiperf,
    }
    known = versions(args)
    rows: dict[str, list[tuple[float, ...]]] = {name: [] for name in known}
    with tempfile.TemporaryDirectory() as folder, embedded_engine(args):
        args.model, args.data = "embedded-engine", str(Path(folder, "data.jsonl"))
        lines = []
        for k in range(args.num_prompts):
            text = " ".join(f"w{(7 * k + n) % 9973}" for n in range(WORDS))
            lines.append(
                {"prompt": text, "text": text, "output_tokens": TOKENS, "output_tokens_count": TOKENS}
            )
        Path(args.data).write_text("".join(json.dumps(line) + "\n" for line in lines))
        for k in range(args.rounds):
            # The other way round each second time.
            for name in list(rows)[:: 1 if k % 2 == 0 else -1]:
                before = resource.getrusage(resource.RUSAGE_CHILDREN)
                into = Path(folder, f"{k}{name.replace(' ', '')}")
                into.mkdir()
                found = tools[name](args, into)
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
                cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
                rows[name].append((*found, cpu_s))
                print(name, *(f"{value:.3f}" for value in rows[name][-1]), file=sys.stderr, flush=True)
    print("| tool | TTFT p50, ms | TPOT p50, ms | CPU, s |\n|---|---|---|---|")
    for name, values in rows.items():
        ttft, tpot, cpu = (statistics.median(column) for column in zip(*values, strict=True))
        print(f"| {name} {known[name]} | {ttft:.2f} | {tpot:.3f} | {cpu:.1f} |")


if __name__ == "__main__":
    main()
