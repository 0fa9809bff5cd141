"""What the platform of a virtual GPU answers where vLLM's CPU platform, which it is made of, would answer as a CPU."""

import importlib
import sys
from types import ModuleType

import pytest


@pytest.fixture
def platform(monkeypatch: pytest.MonkeyPatch) -> type:
    """The plugin's class on stand-ins for the two modules of vLLM that it is made of."""
    stand_ins: dict[str, dict[str, object]] = {
        "vllm": {},
        "vllm.platforms": {},
        "vllm.platforms.cpu": {
            "CpuPlatform": type(
                "CpuPlatform", (), {"discover_numa_topology": classmethod(lambda cls: [[0, 1]])}
            )
        },
        "vllm.platforms.interface": {
            "DeviceCapability": tuple,
            "PlatformEnum": type("PlatformEnum", (), {"OOT": "oot"}),
        },
    }
    for name, content in stand_ins.items():
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "virtual_gpu.platform", raising=False)
    found: type = importlib.import_module("virtual_gpu.platform").VirtualGpuPlatform
    monkeypatch.delitem(sys.modules, "virtual_gpu.platform")
    return found


def test_no_core_is_reserved_for_transfers_as_none_is_on_cuda(platform: type) -> None:
    """NIXL's worker keeps the engine's main thread to the cores that a CPU platform names, and on CUDA it does not."""
    assert platform.discover_numa_topology() == []  # type: ignore[attr-defined]
