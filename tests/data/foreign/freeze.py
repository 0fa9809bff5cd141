"""Results of other load generators, as they wrote them -> the samples in this folder, without texts, places and what nobody reads.

    python freeze.py FOLDER

FOLDER holds what README.md says was run. Numbers are left as they were written.
"""

import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
GUIDELLM_METRICS = (
    "request_totals",
    "requests_per_second",
    "output_tokens_per_second",
    "request_latency",
    "time_to_first_token_ms",
    "time_per_output_token_ms",
    "inter_token_latency_ms",
)
GUIDELLM_REQUEST = (
    "request_start_time",
    "request_end_time",
    "request_latency",
    "output_tokens",
    "time_to_first_token_ms",
    "time_per_output_token_ms",
    "inter_token_latency_ms",
)


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def vllm(path: Path) -> Any:
    return {
        name: [""] * len(value) if name == "generated_texts" else value for name, value in read(path).items()
    }


def guidellm(path: Path) -> Any:
    value = read(path)
    return {
        "metadata": {k: value["metadata"][k] for k in ("version", "guidellm_version")},
        "config": {"metadata": value["config"]["metadata"]},
        "benchmarks": [benchmark(b) for b in value["benchmarks"]],
        "conclusions": value["conclusions"],
    }


def benchmark(value: Any) -> Any:
    kept = ("type_", "start_time", "end_time", "duration", "warmup_duration", "cooldown_duration")
    requests = {
        status: [{k: r[k] for k in GUIDELLM_REQUEST} for r in value["requests"][status]]
        for status in ("successful", "errored", "incomplete")
    }
    return {
        **{k: value[k] for k in kept},
        "config": {"strategy": value["config"]["strategy"]},
        "metrics": {k: value["metrics"][k] for k in GUIDELLM_METRICS},
        "requests": {**requests, "total": value["requests"]["total"]},
    }


def main(runs: Path) -> None:
    files = {
        "vllm_detailed.json": vllm(runs / "v/detailed.json"),
        "vllm_plain.json": vllm(runs / "v/plain.json"),
        "guidellm.json": guidellm(runs / "g1.json"),
        "guidellm_two_loads.json": guidellm(runs / "g2.json"),
    }
    for name, value in files.items():
        (HERE / name).write_text(json.dumps(value) + "\n")
    for name in ("failures", "well"):
        folder = HERE / f"aiperf_{name}"
        folder.mkdir(exist_ok=True)
        value = read(runs / name / "profile_export_aiperf.json")
        del value["run_info"]["cli_command"], value["input_config"]["artifacts"]["dir"]
        value["error_summary"] = [{"count": e["count"]} for e in value["error_summary"]]
        (folder / "profile_export_aiperf.json").write_text(json.dumps(value) + "\n")
        lines = (runs / name / "profile_export.jsonl").read_text().splitlines()
        records = [json.loads(line) for line in lines]
        for record in records:
            metrics = record["metrics"]
            record["metrics"] = {k: v for k, v in metrics.items() if not k.startswith(("http_", "usage_"))}
        (folder / "profile_export.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
