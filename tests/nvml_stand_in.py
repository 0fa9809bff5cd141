"""A stand-in for NVML on a machine without NVIDIA's driver: GPUs, their memory, and failures."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any


class NVMLError(Exception):
    pass


def kind(name: str) -> type[NVMLError]:
    return type(f"NVMLError_{name}", (NVMLError,), {})


@dataclass
class Card:
    """A GPU.

    Attributes:
        used_mib: answers to successive questions about used memory; the last one repeats.
        instances: MIG devices by UUID.
        bus: its PCI bus id as NVML spells it; None if it does not report one.
    """

    uuid: str
    name: str = "NVIDIA H20"
    memory_mib: int = 97_871
    used_mib: list[int] = field(default_factory=lambda: [10])
    instances: dict[str, int] = field(default_factory=dict)
    bus: str | None = None


class Nvml:
    """The part of ``pynvml`` that lists GPUs."""

    NVMLError = NVMLError
    NVMLError_LibraryNotFound = kind("LibraryNotFound")
    NVMLError_DriverNotLoaded = kind("DriverNotLoaded")
    NVMLError_NotSupported = kind("NotSupported")
    NVMLError_InvalidArgument = kind("InvalidArgument")

    def __init__(self, *cards: Card, failing: NVMLError | None = None) -> None:
        self.cards, self.failing, self.driver = cards, failing, "580.65.06"
        self.memory_asked_of: list[str] = []

    def nvmlInit(self) -> None:
        if self.failing is not None:
            raise self.failing

    def nvmlSystemGetDriverVersion(self) -> str:
        return self.driver

    def nvmlDeviceGetCount(self) -> int:
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:
        return self.cards[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Any:
        for card in self.cards:
            if card.uuid == uuid:
                return card
            if uuid in card.instances:
                return Card(uuid, f"{card.name} MIG", card.instances[uuid])
        raise self.NVMLError_InvalidArgument("Invalid Argument")

    def nvmlDeviceGetUUID(self, handle: Card) -> str:
        return handle.uuid

    def nvmlDeviceGetName(self, handle: Card) -> str:
        return handle.name

    def nvmlDeviceGetPciInfo(self, handle: Card) -> Any:
        if handle.bus is None:
            raise self.NVMLError_NotSupported("Not Supported")
        return SimpleNamespace(busId=handle.bus)

    def nvmlDeviceGetMemoryInfo(self, handle: Card) -> Any:
        self.memory_asked_of.append(handle.uuid)
        used_mib = handle.used_mib.pop(0) if len(handle.used_mib) > 1 else handle.used_mib[0]
        return SimpleNamespace(total=handle.memory_mib * 2**20, used=used_mib * 2**20)

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: Card) -> int:
        if not handle.instances:
            raise self.NVMLError_NotSupported("Not Supported")
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Card, index: int) -> Any:
        if index >= len(handle.instances):
            raise self.NVMLError_InvalidArgument("Not Found")
        return self.nvmlDeviceGetHandleByUUID(list(handle.instances)[index])
