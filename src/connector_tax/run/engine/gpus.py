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


def cards_of(engine: EngineConfig, environ: Mapping[str, str] | None = None, place: int = 0) -> Cards:
    """Return the cards of ``engine``: those of CUDA_VISIBLE_DEVICES if set, else from ``run.engine.gpu`` on.

    Args:
        place: number of engines whose cards come first in CUDA_VISIBLE_DEVICES.

    Raises:
        ConfigError: an entry names no card or several, or fewer cards are visible than the engine takes.
    """
    if engine.kind == "emulator":
        return Cards((), engine.gpu)
    if engine.kind == "virtual_gpu":
        # A card of this host would be a second device, which the config does not ask for.
        return Cards((), engine.gpu, {VISIBLE: ""})
    variables = {**(os.environ if environ is None else environ), **engine.env}
    shown = variables.get(VISIBLE)
    if _shows_none(shown):
        return Cards((), engine.gpu, {VISIBLE: str(shown)})
    wanted = cards_wanted(engine)
    if shown is not None:
        entries = [e.strip() for e in shown.split(",")][place * wanted :]
        shown = ",".join(entries) if place else shown
    else:
        entries = [str(engine.gpu + k) for k in range(wanted)]
    present, fault = host_gpus()
    if not present:
        return Cards((), engine.gpu, {VISIBLE: ",".join(entries)}, _without_cards(shown, fault))
    where = f"{VISIBLE}={shown}" if shown is not None else f"engine.gpu: {engine.gpu}"
    if len(entries) < wanted:
        raise ConfigError(
            f"{where}: {len(entries)} cards, but the engine's parallel sizes multiply to {wanted}. Show it"
            " that many."
        )
    gpus = tuple(_named(entry, present, where) for entry in entries[:wanted])
    if len({g.uuid for g in gpus}) < len(gpus):
        raise ConfigError(f"{where}: names one card twice. Give each card once.")
    return Cards(gpus, engine.gpu, _environment(gpus), _note(entries, gpus, present, variables, shown))


def engines_shown(engine: EngineConfig, environ: Mapping[str, str] | None = None) -> int | None:
    """Return how many engines CUDA_VISIBLE_DEVICES has cards for, at least 1; None if it lists none."""
    shown = {**(os.environ if environ is None else environ), **engine.env}.get(VISIBLE)
    if engine.kind != "vllm" or shown is None or _shows_none(shown):
        return None
    return max(1, len(shown.split(",")) // cards_wanted(engine))


def _shows_none(shown: str | None) -> bool:
    return shown is not None and shown.partition(",")[0].strip().lower() in SHOWN_NONE


def cards_wanted(engine: EngineConfig) -> int:
    return math.prod(parallel_sizes(engine).values())


def parallel_sizes(engine: EngineConfig) -> dict[str, int]:
    """Return the sizes by name in ``PARALLEL``; 1 where the engine's arguments set none."""
    sizes = {name: int(engine.args.get(name) or 1) for name in PARALLEL}
    extra = [part for argument in engine.extra_args for part in argument.split("=", 1)]
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
        told = pynvml.nvmlSystemGetDriverVersion()
    except pynvml.NVMLError:
        return None
    return told.decode() if isinstance(told, bytes) else str(told)


def memory_used_mib(gpu: Gpu) -> int | None:
    """Return the MiB in use on the card now; None if the driver does not report it."""
    import pynvml

    try:
        pynvml.nvmlInit()  # NVML counts calls and opens the driver once
        return int(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByUUID(gpu.uuid)).used) // 2**20
    except pynvml.NVMLError:
        return None


def _listed(nvml: Any) -> tuple[Gpu, ...]:
    found: list[Gpu] = []
    for index in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        card = nvml.nvmlDeviceGetUUID(handle)
        found.append(_gpu(nvml, handle, index, card))
        found += [_gpu(nvml, instance, index, card) for instance in _mig_instances(nvml, handle)]
    return tuple(found)


def _mig_instances(nvml: Any, handle: Any) -> list[Any]:
    try:
        count = nvml.nvmlDeviceGetMaxMigDeviceCount(handle)
    except nvml.NVMLError:
        return []  # the card does not support MIG
    found = []
    for k in range(count):
        try:
            found.append(nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, k))
        except nvml.NVMLError:
            continue  # no instance at this index
    return found


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
    place = re.sub("^0000(?=[0-9a-f]{4}:)", "", (bus.decode() if isinstance(bus, bytes) else bus).lower())
    file = SYSFS / "bus" / "pci" / "devices" / place / "numa_node"
    # -1 if the host has one node or the firmware does not report it.
    return int(text) if file.is_file() and (text := file.read_text().strip()).isdigit() else None


def _named(entry: str, present: tuple[Gpu, ...], where: str) -> Gpu:
    """Return the card that an entry names as CUDA reads it: by index, by UUID or by the start of one."""
    if is_number(entry):
        fitting = [g for g in present if g.index == int(entry) and not g.is_mig]
    else:
        fitting = [g for g in present if entry and g.uuid.lower().startswith(entry.lower())]
    if len(fitting) == 1:
        return fitting[0]
    found = "several cards" if fitting else "no card of this host"
    raise ConfigError(
        f"{where}: {entry!r} names {found}. There are: {'; '.join(map(str, present))}. Give an index or a"
        f" UUID of these, or {VISIBLE}= (empty) for an engine that needs none."
    )


def _environment(gpus: tuple[Gpu, ...]) -> dict[str, str]:
    if any(g.is_mig for g in gpus):
        return {VISIBLE: ",".join(g.uuid for g in gpus)}
    # Not UUIDs, although they are unambiguous: vLLM takes int() of each entry (decision 0011).
    return {VISIBLE: ",".join(str(g.index) for g in gpus), ORDER: "PCI_BUS_ID"}


def _note(
    entries: list[str],
    gpus: tuple[Gpu, ...],
    present: tuple[Gpu, ...],
    variables: Mapping[str, str],
    shown: str | None,
) -> str | None:
    if any(g.is_mig for g in gpus):
        return (
            f"{VISIBLE}={shown} names a MIG instance. No vLLM up to 0.32 takes one (it reads each entry as a"
            " number); if the engine dies with `invalid literal for int()`, that is why."
        )
    by_number = any(is_number(e) for e in entries[: len(gpus)])
    kinds = sorted({g.name for g in present if not g.is_mig})
    if shown is not None and by_number and variables.get(ORDER) != "PCI_BUS_ID" and len(kinds) > 1:
        return (
            f"{VISIBLE}={shown} is read in the order of the PCI bus, as nvidia-smi numbers cards:"
            f" {'; '.join(map(str, gpus))}. CUDA by itself may put the fastest card first, and this host's"
            f" differ ({', '.join(kinds)}). The engine gets {ORDER}=PCI_BUS_ID, so that both mean the same."
            " If another card was meant, name it by its UUID."
        )
    return None


def _without_cards(shown: str | None, fault: str | None) -> str | None:
    """Return a note, or None if no card was requested on a host without a driver."""
    if shown is None and fault == "this host has no NVIDIA driver":
        return None
    asked = f"{VISIBLE}={shown}" if shown is not None else "engine.gpu"
    return (
        f"{asked} names no card that could be looked up: {fault}. The engine is launched with it all the"
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
    of = len(engine.slots)
    here = min(of, engines_shown(engine, environ) or of)
    if engine.port + of - 1 > LAST_PORT and engine.port:
        raise ConfigError(
            f"engine.port: {engine.port}: each of {of} engines has a port of its own from there on, and the"
            f" last one is {LAST_PORT}. Give a lower one, or 0 to have free ones taken."
        )
    found = []
    for place, gpu in enumerate(engine.slots[:here]):
        own = replace(engine, gpu=gpu, port=engine.port + place if engine.port else 0)
        found.append(Slot(own, cards_of(own, environ, place), place, here))
    _check_apart(found)
    return tuple(found)


def _check_apart(slots: list[Slot]) -> None:
    first: dict[str, Slot] = {}
    for slot in slots:
        for gpu in slot.cards.gpus:
            if gpu.uuid in first:
                raise ConfigError(
                    f"engine.gpus: {first[gpu.uuid].engine.gpu} and {slot.engine.gpu} would both run on"
                    f" {gpu}. Each engine takes {len(slot.cards.gpus)} cards from the one that is named on;"
                    " name cards that are so far apart."
                )
            first[gpu.uuid] = slot
    kinds = {gpu.name: gpu for slot in slots for gpu in slot.cards.gpus}
    if len(kinds) > 1:
        raise ConfigError(
            f"engine.gpus: cards of {len(kinds)} kinds: {'; '.join(map(str, kinds.values()))}. One campaign"
            " measures on one kind, also with engine.mix_cards. Name those of one kind, or make a campaign"
            " of each."
        )
