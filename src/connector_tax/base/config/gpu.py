"""Resolves ``engine.virtual_gpu`` and its file in ``config/gpus/`` to one ``VirtualGpu``."""

import os
from pathlib import Path

from msgspec.structs import asdict

from connector_tax.base.config.checked import PROJECT_ROOT, checked, read_yaml
from connector_tax.base.config.model import GpuChoice
from connector_tax.base.errors import ConfigError
from connector_tax.base.records.host import GpuProfile, HostCosts, OperatingPoint, VirtualGpu

# Written so that imports.py does not find it: profiles are a campaign's data, in its document and hashes, and
# no code of the analysis.
GPUS = PROJECT_ROOT.joinpath("config", "gpus")

# vLLM's default differs between releases (0.9, from 0.32 on 0.92), but the virtual GPU needs one size of KV
# cache.
UTILIZATION = 0.9


def virtual_gpu(value: GpuChoice, where: str) -> VirtualGpu:
    """Return the profile that ``value.gpu`` names, overridden by the campaign's own numbers.

    Args:
        where: the section, for messages.

    Raises:
        ConfigError: the profile is missing or invalid.
    """
    path = profile_path(value.gpu, f"{where}.gpu")
    profile = checked(read_yaml(path), GpuProfile, os.path.relpath(path))
    own = {name: part for name, part in asdict(profile).items() if name in VirtualGpu.__struct_fields__}
    point = {**asdict(profile.operating_point), **value.operating_point}
    return VirtualGpu(
        **{
            **own,
            **asdict(profile.overhead),
            "profile": path.stem,
            "compute_share": profile.achieved.compute,
            "bandwidth_share": profile.achieved.bandwidth,
            "operating_point": checked(point, OperatingPoint, f"{where}.operating_point"),
            "host": checked({**asdict(profile.host), **value.host}, HostCosts, f"{where}.host"),
            "step": value.step or profile.step,
            "kv_cache_bytes": value.kv_cache_bytes or profile.kv_cache_bytes,
        }
    )


def profile_path(gpu: str, where: str) -> Path:
    """Return a profile's path: a bare name in ``config/gpus/``, or a path relative to the project's root."""
    path = PROJECT_ROOT / gpu if "/" in gpu or gpu.endswith((".yaml", ".yml")) else GPUS / f"{gpu}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in GPUS.glob("*.yaml")))
        raise ConfigError(
            f"{where}: {gpu!r}: no such profile. Known: {known}. Give one of these, or the path of a YAML"
            " file of that form."
        )
    return path
