"""``run.engine.virtual_gpu`` and its file of ``config/gpus/`` to one ``VirtualGpu``."""

from pathlib import Path

from connector_tax.base.config.checked import PROJECT_ROOT, checked, read_yaml
from connector_tax.base.errors import ConfigError
from connector_tax.base.records.bounds import Foreign
from connector_tax.base.records.host import HostCosts, OperatingPoint, StepCosts, VirtualGpu

# Not a path that imports.py finds: profiles are data of a campaign, in its document and its hashes, and no code of who reads results.
GPUS = PROJECT_ROOT.joinpath("config", "gpus")

# vLLM's own default differs between releases (0.9, from 0.32 on 0.92), and the virtual GPU has to have the KV cache of one.
UTILIZATION = 0.9


def virtual_gpu(value: Foreign, where: str) -> VirtualGpu:
    """The profile that ``value["gpu"]`` names, with the campaign's own numbers in place of the profile's.

    Args:
        value: the section ``run.engine.virtual_gpu``, checked.
        where: the file to name in messages.

    Raises:
        ConfigError: there is no such profile, or it is none.
    """
    path = profile_path(value["gpu"], f"{where}: engine.virtual_gpu.gpu")
    profile = checked(read_yaml(path), "gpu", _shown(path))
    achieved, overhead = profile["achieved"], profile["overhead"]
    step = value["step"] or profile["step"]
    major, minor = profile["compute_capability"]
    return VirtualGpu(
        profile=path.stem,
        name=profile["name"],
        compute_capability=(major, minor),
        memory_bytes=profile["memory_bytes"],
        bf16_tflops=float(profile["bf16_tflops"]),
        memory_gb_per_s=float(profile["memory_gb_per_s"]),
        host_link_gb_per_s=float(profile["host_link_gb_per_s"]),
        compute_share=float(achieved["compute"]),
        bandwidth_share=float(achieved["bandwidth"]),
        step_us=float(overhead["step_us"]),
        dense_layer_us=float(overhead["dense_layer_us"]),
        moe_layer_us=float(overhead["moe_layer_us"]),
        reserved_bytes=profile["reserved_bytes"],
        operating_point=OperatingPoint(**{**profile["operating_point"], **value["operating_point"]}),
        host=HostCosts(**_floats({**profile["host"], **value["host"]})),
        step=None if step is None else StepCosts(**_floats(step)),
        kv_cache_bytes=value["kv_cache_bytes"] or profile["kv_cache_bytes"],
    )


def profile_path(gpu: str, where: str) -> Path:
    """A bare name is one of ``config/gpus/``; anything else a path, from the project's root where it is relative."""
    path = PROJECT_ROOT / gpu if "/" in gpu or gpu.endswith((".yaml", ".yml")) else GPUS / f"{gpu}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in GPUS.glob("*.yaml")))
        raise ConfigError(
            f"{where}: {gpu!r}: no such profile. Known: {known}. Give one of these, or the path of a YAML file of that form."
        )
    return path


def _shown(path: Path) -> str:
    return str(path.relative_to(PROJECT_ROOT)) if path.is_relative_to(PROJECT_ROOT) else str(path)


def _floats(costs: Foreign) -> dict[str, float]:
    """4000 and 4000.0 are one number, and must have one hash."""
    return {name: float(cost) for name, cost in costs.items()}
