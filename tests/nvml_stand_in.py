"""NVIDIA's driver as NVML tells of it, on a machine without one: some cards, their memory, and what fails."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any


class NVMLError(Exception):
    pass


def kind(name: str) -> type[NVMLError]:
    return type(f"NVMLError_{name}", (NVMLError,), {})


@dataclass
class Card:
    """``instances``: MIG devices by UUID; ``used_mib``: what each question after memory in use is told, the last one for ever;
    ``bus``: its place there, as NVML spells it, None for a card that does not tell."""

    uuid: str
    name: str = "NVIDIA H20"
    memory_mib: int = 97_871
    used_mib: list[int] = field(default_factory=lambda: [10])
    instances: dict[str, int] = field(default_factory=dict)
    bus: str | None = None


class Nvml:
    """What of ``pynvml`` lists cards."""

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
