"""Finds the cards that an engine runs on, once per job, and names each by UUID.

CUDA_VISIBLE_DEVICES may hold indices, UUIDs or their beginnings, and CUDA_DEVICE_ORDER decides what an index
means. Only this module reads them: the engine's environment, the lock, the wait for released memory, the
sampler and the receipt all use ``cards_of``. Source: CUDA C++ Programming Guide, environment variables. Why
the engine gets indices: docs/decisions/0011.
"""

import itertools
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from connector_tax.base.config import EngineConfig
from connector_tax.base.config.model import Runtime
from connector_tax.base.errors import ConfigError
from connector_tax.base.units import LAST_PORT, is_number

VISIBLE, ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"
SYSFS = Path("/sys")
SHOWN_NONE = ("", "-1", "nodevfiles", "void", "none")
# Arguments whose product is the number of cards per engine.
PARALLEL = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
SHORT_FLAGS = {
    "-tp": "tensor_parallel_size",
    "-pp": "pipeline_parallel_size",
    "-dp": "data_parallel_size",
}


@dataclass(frozen=True, slots=True)
class Gpu:
    """One card, or one MIG instance of a card.

    Attributes:
        index: in NVML's and nvidia-smi's numbering, by PCI bus.
        uuid: as ``nvidia-smi -L`` prints it.
        memory_mib: total; None if the driver does not report it.
        card_uuid: of the whole card, which has the clocks and the power; differs from
            ``uuid`` for a MIG instance.
        numa: NUMA node of the host; None if unknown.
    """

    index: int
    uuid: str
    name: str
    memory_mib: int | None
    card_uuid: str
    numa: int | None = None

    @property
    def is_mig(self) -> bool:
        return self.uuid != self.card_uuid

    def __str__(self) -> str:
        return f"GPU {self.index}: {self.name} (UUID: {self.uuid})"


@dataclass(frozen=True, slots=True)
class Cards:
    """What an engine is launched on.

    Attributes:
        gpus: in the engine's order; empty for the embedded engine, a virtual GPU, a host without a driver,
            and where none is visible.
        slot: ``run.engine.gpu`` or one of ``engine.gpus``; distinguishes measurements without a card.
        environment: variables that give the engine exactly these cards.
        note: what the user should know about how they were found.
    """

    gpus: tuple[Gpu, ...]
    slot: int
    environment: dict[str, str] = field(default_factory=dict)
    note: str | None = None

    @property
    def first(self) -> Gpu | None:
        return self.gpus[0] if self.gpus else None

    @property
    def sampled(self) -> str | None:
        return self.gpus[0].card_uuid if self.gpus else None

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of its locks, in an order that all campaigns share."""
        if not self.gpus:
            return (f"gpu{self.slot}",)
        return tuple(sorted(gpu.uuid.replace("/", "_") for gpu in self.gpus))

    @property
    def words(self) -> str:
        return " and ".join(map(str, self.gpus)) or f"place {self.slot} on this host"

    @property
    def side_port_slot(self) -> int:
        """Return the card's index on this host, by which connectors' ports are shifted."""
        return self.gpus[0].index if self.gpus else self.slot


def visible_inside(cards: Cards) -> dict[str, str]:
    """Return CUDA_VISIBLE_DEVICES for a container, which numbers only its own cards, from 0 in bus order."""
    if not cards.gpus or any(gpu.is_mig for gpu in cards.gpus):
        return dict(cards.environment)
    on_the_bus = sorted(gpu.index for gpu in cards.gpus)
    return {VISIBLE: ",".join(str(on_the_bus.index(gpu.index)) for gpu in cards.gpus), ORDER: "PCI_BUS_ID"}


def gpu_words(runtime: Runtime, cards: Cards) -> list[str]:
    """Return the runtime's arguments for the cards, by UUID, since it may order cards differently."""
    uuids = [gpu.uuid for gpu in cards.gpus]
    if uuids and runtime == "docker":
        return [f'--gpus="device={",".join(uuids)}"']  # in quotes, since docker splits at commas
    return [f"--device=nvidia.com/gpu={uuid}" for uuid in uuids]


def cards_of(engine: EngineConfig, environ: Mapping[str, str] | None = None, n_before: int = 0) -> Cards:
    """Return the cards of ``engine``: those of CUDA_VISIBLE_DEVICES if set, else from ``run.engine.gpu`` on.

    Args:
        n_before: number of engines whose cards come first in CUDA_VISIBLE_DEVICES.

    Raises:
        ConfigError: an entry names no card or several, or fewer cards are visible than the engine takes.
    """
    if engine.kind == "emulator":
        return Cards((), engine.gpu)
    if engine.kind == "virtual_gpu":
        # A card of this host would be a second device, which the config does not ask for.
        return Cards((), engine.gpu, {VISIBLE: ""})
    variables = {**(os.environ if environ is None else environ), **engine.env}
    visible = variables.get(VISIBLE)
    if _shows_none(visible):
        return Cards((), engine.gpu, {VISIBLE: str(visible)})
    n_cards = cards_wanted(engine)
    if visible is not None:
        entries = [e.strip() for e in visible.split(",")][n_before * n_cards :]
        visible = ",".join(entries) if n_before else visible
    else:
        entries = [str(engine.gpu + offset) for offset in range(n_cards)]
    host_cards, fault = host_gpus()
    if not host_cards:
        return Cards((), engine.gpu, {VISIBLE: ",".join(entries)}, _without_cards(visible, fault))
    source = f"{VISIBLE}={visible}" if visible is not None else f"engine.gpu: {engine.gpu}"
    if len(entries) < n_cards:
        raise ConfigError(
            f"{source}: {len(entries)} cards, but the engine's parallel sizes multiply to {n_cards}. Show it"
            " that many."
        )
    gpus = tuple(_card_named(entry, host_cards, source) for entry in entries[:n_cards])
    if len({gpu.uuid for gpu in gpus}) < len(gpus):
        raise ConfigError(f"{source}: names one card twice. Give each card once.")
    return Cards(gpus, engine.gpu, _environment(gpus), _note(entries, gpus, host_cards, variables, visible))


def engines_shown(engine: EngineConfig, environ: Mapping[str, str] | None = None) -> int | None:
    """Return how many engines CUDA_VISIBLE_DEVICES has cards for, at least 1; None if it lists none."""
    visible = {**(os.environ if environ is None else environ), **engine.env}.get(VISIBLE)
    if engine.kind != "vllm" or visible is None or _shows_none(visible):
        return None
    return max(1, len(visible.split(",")) // cards_wanted(engine))


def _shows_none(visible: str | None) -> bool:
    return visible is not None and visible.partition(",")[0].strip().lower() in SHOWN_NONE


def cards_wanted(engine: EngineConfig) -> int:
    return math.prod(parallel_sizes(engine).values())


def parallel_sizes(engine: EngineConfig) -> dict[str, int]:
    """Return the sizes by name in ``PARALLEL``; 1 where the engine's arguments set none."""
    sizes = {name: int(engine.args.get(name) or 1) for name in PARALLEL}
    extra = [word for argument in engine.extra_args for word in argument.split("=", 1)]
    for flag, value in itertools.pairwise(extra):
        name = SHORT_FLAGS.get(flag, flag.removeprefix("--").replace("-", "_"))
        if name in sizes and is_number(value):
            sizes[name] = int(value)
    return sizes


def host_gpus() -> tuple[tuple[Gpu, ...], str | None]:
    """Return this host's cards and MIG instances in bus order, and the reason if there are none."""
    try:
        # Imported here: it takes 0.1 s of a core, and an engine without a card does not need it.
        import pynvml
    except ImportError as error:
        return (), f"NVML's bindings cannot be imported ({error})"
    try:
        pynvml.nvmlInit()
        return _listed(pynvml), None
    except (pynvml.NVMLError_LibraryNotFound, pynvml.NVMLError_DriverNotLoaded):
        return (), "this host has no NVIDIA driver"
    except pynvml.NVMLError as error:
        return (), f"NVIDIA's driver does not list its cards ({error})"


def driver_version() -> str | None:
    import pynvml

    try:
        pynvml.nvmlInit()
        version = pynvml.nvmlSystemGetDriverVersion()
    except pynvml.NVMLError:
        return None
    return version.decode() if isinstance(version, bytes) else str(version)


def memory_used_mib(gpu: Gpu) -> int | None:
    """Return the MiB in use on the card now; None if the driver does not report it."""
    import pynvml

    try:
        pynvml.nvmlInit()  # NVML counts calls and opens the driver once
        return int(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByUUID(gpu.uuid)).used) // 2**20
    except pynvml.NVMLError:
        return None


def _listed(nvml: Any) -> tuple[Gpu, ...]:
    gpus: list[Gpu] = []
    for index in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        card = nvml.nvmlDeviceGetUUID(handle)
        gpus.append(_gpu(nvml, handle, index, card))
        gpus += [_gpu(nvml, instance, index, card) for instance in _mig_instances(nvml, handle)]
    return tuple(gpus)


def _mig_instances(nvml: Any, handle: Any) -> list[Any]:
    try:
        count = nvml.nvmlDeviceGetMaxMigDeviceCount(handle)
    except nvml.NVMLError:
        return []  # the card does not support MIG
    instances = []
    for index in range(count):
        try:
            instances.append(nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index))
        except nvml.NVMLError:
            continue  # no instance at this index
    return instances


def _gpu(nvml: Any, handle: Any, index: int, card_uuid: str) -> Gpu:
    try:
        memory_mib = int(nvml.nvmlDeviceGetMemoryInfo(handle).total) // 2**20
    except nvml.NVMLError:
        memory_mib = None
    uuid, name = nvml.nvmlDeviceGetUUID(handle), nvml.nvmlDeviceGetName(handle)
    return Gpu(index, uuid, name, memory_mib, card_uuid, _numa(nvml, handle))


def _numa(nvml: Any, handle: Any) -> int | None:
    """Return the card's NUMA node from sysfs; NVML writes the PCI domain with more digits."""
    try:
        bus = nvml.nvmlDeviceGetPciInfo(handle).busId
    except nvml.NVMLError:
        return None
    pci_address = re.sub(
        "^0000(?=[0-9a-f]{4}:)", "", (bus.decode() if isinstance(bus, bytes) else bus).lower()
    )
    file = SYSFS / "bus" / "pci" / "devices" / pci_address / "numa_node"
    # -1 if the host has one node or the firmware does not report it.
    return int(text) if file.is_file() and (text := file.read_text().strip()).isdigit() else None


def _card_named(entry: str, host_cards: tuple[Gpu, ...], source: str) -> Gpu:
    """Return the card that an entry names as CUDA reads it: by index, by UUID or by the start of one."""
    if is_number(entry):
        fitting = [gpu for gpu in host_cards if gpu.index == int(entry) and not gpu.is_mig]
    else:
        fitting = [gpu for gpu in host_cards if entry and gpu.uuid.lower().startswith(entry.lower())]
    if len(fitting) == 1:
        return fitting[0]
    matched = "several cards" if fitting else "no card of this host"
    raise ConfigError(
        f"{source}: {entry!r} names {matched}. There are: {'; '.join(map(str, host_cards))}. Give an index or"
        f" a UUID of these, or {VISIBLE}= (empty) for an engine that needs none."
    )


def _environment(gpus: tuple[Gpu, ...]) -> dict[str, str]:
    if any(gpu.is_mig for gpu in gpus):
        return {VISIBLE: ",".join(gpu.uuid for gpu in gpus)}
    # Not UUIDs, although they are unambiguous: vLLM takes int() of each entry (decision 0011).
    return {VISIBLE: ",".join(str(gpu.index) for gpu in gpus), ORDER: "PCI_BUS_ID"}


def _note(
    entries: list[str],
    gpus: tuple[Gpu, ...],
    host_cards: tuple[Gpu, ...],
    variables: Mapping[str, str],
    visible: str | None,
) -> str | None:
    if any(gpu.is_mig for gpu in gpus):
        return (
            f"{VISIBLE}={visible} names a MIG instance. No vLLM up to 0.32 takes one (it reads each entry as"
            " a number); if the engine dies with `invalid literal for int()`, that is why."
        )
    by_number = any(is_number(entry) for entry in entries[: len(gpus)])
    card_names = sorted({gpu.name for gpu in host_cards if not gpu.is_mig})
    if visible is not None and by_number and variables.get(ORDER) != "PCI_BUS_ID" and len(card_names) > 1:
        return (
            f"{VISIBLE}={visible} is read in the order of the PCI bus, as nvidia-smi numbers cards:"
            f" {'; '.join(map(str, gpus))}. CUDA by itself may put the fastest card first, and this host's"
            f" differ ({', '.join(card_names)}). The engine gets {ORDER}=PCI_BUS_ID, so that both mean the"
            " same. If another card was meant, name it by its UUID."
        )
    return None


def _without_cards(visible: str | None, fault: str | None) -> str | None:
    """Return a note, or None if no card was requested on a host without a driver."""
    if visible is None and fault == "this host has no NVIDIA driver":
        return None
    setting = f"{VISIBLE}={visible}" if visible is not None else "engine.gpu"
    return (
        f"{setting} names no card that could be looked up: {fault}. The engine is launched with it all the"
        " same, and no card is watched."
    )


# Slots: the engines that a campaign may run side by side on one host, without shared cards or ports.


@dataclass(frozen=True, slots=True)
class Slot:
    """The slot of one engine.

    Attributes:
        engine: with this slot's card and port.
        place: index among ``of`` slots.
    """

    engine: EngineConfig
    cards: Cards
    place: int = 0
    of: int = 1


def slots_of(engine: EngineConfig, environ: Mapping[str, str] | None = None) -> tuple[Slot, ...]:
    """Return a slot for each of ``engine.gpus``, or the one of ``engine.gpu``.

    Fewer if CUDA_VISIBLE_DEVICES shows fewer cards, as in a job of a batch system.

    Raises:
        ConfigError: a card is missing or shared, the cards differ in kind, or a port is above the last one.
    """
    n_slots = len(engine.slots)
    n_visible = min(n_slots, engines_shown(engine, environ) or n_slots)
    if engine.port + n_slots - 1 > LAST_PORT and engine.port:
        raise ConfigError(
            f"engine.port: {engine.port}: each of {n_slots} engines has a port of its own from there on, and"
            f" the last one is {LAST_PORT}. Give a lower one, or 0 to have free ones taken."
        )
    slots = []
    for index, gpu in enumerate(engine.slots[:n_visible]):
        slot_engine = replace(engine, gpu=gpu, port=engine.port + index if engine.port else 0)
        slots.append(Slot(slot_engine, cards_of(slot_engine, environ, index), index, n_visible))
    _refuse_shared_cards(slots)
    return tuple(slots)


def _refuse_shared_cards(slots: list[Slot]) -> None:
    slot_of: dict[str, Slot] = {}
    for slot in slots:
        for gpu in slot.cards.gpus:
            if gpu.uuid in slot_of:
                raise ConfigError(
                    f"engine.gpus: {slot_of[gpu.uuid].engine.gpu} and {slot.engine.gpu} would both run on"
                    f" {gpu}. Each engine takes {len(slot.cards.gpus)} cards from the one that is named on;"
                    " name cards that are so far apart."
                )
            slot_of[gpu.uuid] = slot
    gpu_of = {gpu.name: gpu for slot in slots for gpu in slot.cards.gpus}
    if len(gpu_of) > 1:
        raise ConfigError(
            f"engine.gpus: cards of {len(gpu_of)} kinds: {'; '.join(map(str, gpu_of.values()))}. One campaign"
            " measures on one kind, also with engine.mix_cards. Name those of one kind, or make a campaign"
            " of each."
        )
