"""``pytorch-benchmark.json``: the history as records that the dashboards of PyTorch and vLLM read, one tax of one campaign each.

Their database is the table ``oss_ci_benchmark_v3`` of pytorch/test-infra: maps in it hold strings, and whoever uploads the records adds
repository, commit and job. ``args`` is an object, as vLLM's own benchmarks write it. The dashboards cut values to two decimals, so taxes are
percent and no ratios. A tax without a number has no record, since they have no word for one.
"""

from datetime import datetime
from typing import Any

import msgspec

from connector_tax.base.documents.history import Campaign, Environment, History, Point, Series
from connector_tax.read.figures.words import clean
from connector_tax.read.track.series import class_of

NAME = "connector-tax"


class Benchmark(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    mode: str
    dtype: str
    extra_info: dict[str, Any]


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """
    Attributes:
        backend: the configuration, since dashboards tell series apart by it.
    """

    name: str
    type: str
    backend: str
    origins: tuple[str, ...]
    extra_info: dict[str, str]


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """
    Attributes:
        target_value: no tax.
    """

    name: str
    benchmark_values: tuple[float, ...]
    target_value: float
    extra_info: dict[str, str]


class Runner(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    type: str
    cpu_info: str
    cpu_count: int
    gpu_info: str
    gpu_count: int
    extra_info: dict[str, str]


class Dependency(msgspec.Struct, frozen=True, kw_only=True):
    repo: str
    branch: str
    sha: str
    version: str
    extra_info: dict[str, str]


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """
    Attributes:
        timestamp: of the campaign's first start, seconds of Unix time.
    """

    timestamp: int
    schema_version: str
    name: str
    benchmark: Benchmark
    model: Model
    metric: Metric
    runners: tuple[Runner, ...]
    dependencies: dict[str, Dependency]


REPOSITORIES = {
    "vllm": "vllm-project/vllm",
    "lmcache": "LMCache/LMCache",
    "nixl": "ai-dynamo/nixl",
    "mooncake": "kvcache-ai/Mooncake",
}


def records(history: History) -> list[Record]:
    """One per tax with a number, series by series."""
    return [
        _record(history, series, point)
        for series in history.series
        for point in series.points
        if point.point is not None
    ]


def _record(history: History, series: Series, point: Point) -> Record:
    campaign = history.campaigns[point.campaign]
    environment = history.environments[series.environment]
    ends = {"low_percent": point.low, "high_percent": point.high}
    return Record(
        timestamp=_seconds(campaign.when),
        schema_version="v3",
        name=NAME,
        benchmark=Benchmark(
            name=NAME,
            mode="inference",
            dtype="",
            extra_info={
                "args": {
                    "kv_connector_config": series.config,
                    "request_rate": series.rate_per_s,
                    "tensor_parallel_size": _tensor_parallel(environment),
                    "reference": series.reference,
                },
                "campaign": clean(campaign.name),
                "device": _device(environment),
            },
        ),
        model=Model(
            name=clean(environment.facts["model"]),
            type="LLM",
            backend=series.config,
            origins=(),
            extra_info={"label": series.label},
        ),
        metric=Metric(
            name=f"{series.metric}_tax_percent_{series.reference}",
            benchmark_values=(100 * (point.point or 0.0),),
            target_value=0.0,
            extra_info={
                **{name: "unbounded" if v is None else f"{100 * v:.6g}" for name, v in ends.items()},
                "kind": point.kind,
                "kind_class": class_of(point),
                "overloaded": "true" if point.overloaded else "false",
                "flags": ", ".join(map(clean, point.flags)),
            },
        ),
        runners=(_runner(environment),),
        dependencies=_dependencies(campaign),
    )


def _runner(environment: Environment) -> Runner:
    cores = environment.facts["host cores"]
    # "1 x NVIDIA H20, 2 x NVIDIA L4"
    cards = [part.partition(" x ")[::2] for part in _device(environment).split(", ")]
    counted = all(card and count.isdecimal() and len(count) < 7 for count, card in cards)
    return Runner(
        name=_device(environment),
        type=_device(environment),
        cpu_info=clean(environment.facts["host CPU"]),
        cpu_count=int(cores) if cores.isdecimal() and len(cores) < 7 else 0,
        gpu_info=", ".join(card for _, card in cards) if counted else _device(environment),
        gpu_count=sum(int(count) for count, _ in cards) if counted else 0,
        extra_info={name: clean(text) for name, text in environment.facts.items()},
    )


def _dependencies(campaign: Campaign) -> dict[str, Dependency]:
    sha = campaign.versions.get("vllm_git_sha")
    return {
        name: Dependency(
            repo=REPOSITORIES.get(name, ""),
            branch="",
            sha=clean(str(sha)) if name == "vllm" and sha else "",
            version=clean(str(version)),
            extra_info={},
        )
        for name, version in campaign.versions.items()
        if version is not None and name not in ("vllm_git_sha", "vllm_record_sha256")
    }


def _device(environment: Environment) -> str:
    return clean(environment.facts["device"], 200)


def _tensor_parallel(environment: Environment) -> str:
    return clean(environment.facts.get("engine argument tensor_parallel_size", "1"))


def _seconds(when: str) -> int:
    """``when`` of a campaign is a date, or one with a time in UTC."""
    try:
        return int(datetime.fromisoformat(when if "T" in when else f"{when}T00:00:00+00:00").timestamp())
    except ValueError:  # 2026-13-45 has the form of a date
        return 0
