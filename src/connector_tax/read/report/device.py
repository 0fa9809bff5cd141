"""A virtual GPU in words: what the device was, what it therefore cannot show, and how well its clock kept the time."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from connector_tax.base.documents.aggregate import Aggregate, DeviceClock, VirtualGpu
from connector_tax.read.figures.questions import virtual_name
from connector_tax.read.figures.words import clean

NEVER_SHOWN = "kernels, memory traffic, transfers of KV between devices, what CUDA graphs really cost"
COPIES = "Copies of KV between the device and its host are clocked by stand-ins where a connector makes them."
STEP = ("base_us", "per_prefill_token_us", "per_decode_seq_us", "per_context_token_us")


@dataclass(frozen=True, slots=True)
class ClockRow:
    label: str
    cells: str
    steps: str
    lateness: str
    late_share: str
    busy: str
    slack_p10: str
    slack_p50: str


def device_banner(aggregate: Aggregate) -> list[str]:
    """What must be known before any number of a virtual GPU is read; empty for every other campaign."""
    gpu = aggregate.provenance.clock
    if gpu is None:
        return []
    lines = [
        f"The device was a clock: vLLM's API server, engine core, scheduler, KV-cache manager and connectors ran as they are, and in "
        f"place of the model's forward pass a step lasted as long as the profile of the {virtual_name(gpu)} says{_step(gpu)}.",
        _not_shown(gpu),
    ]
    return [*lines, *_stand_ins(aggregate), *_kept_time(aggregate)]


def _step(gpu: VirtualGpu) -> str:
    if any(name not in gpu.step for name in STEP):
        return ""
    base, prefill, decode, context = (gpu.step[name] for name in STEP)
    return (
        f": {base:,.0f} µs, {prefill:.4g} µs per prompt token, {decode:.4g} µs per decoding sequence and "
        f"{context:.4g} µs per token of context"
    )


def _not_shown(gpu: VirtualGpu) -> str:
    before, each, after = (
        gpu.host.get(name, 0.0)
        for name in ("before_launch_us", "before_launch_per_seq_us", "after_launch_us")
    )
    if before or each or after:
        said = (
            f"What a GPU's runner does on the host is set to {before:g} µs and {each:g} µs a sequence before the launch and "
            f"{after:g} µs after it."
        )
        return f"It cannot show {NEVER_SHOWN}. {COPIES} {said}"
    return f"It cannot show {NEVER_SHOWN}, nor what a GPU's runner prepares on the host, which is set to none. {COPIES}"


def _stand_ins(aggregate: Aggregate) -> list[str]:
    """What was put in place of the device for each configuration, as the plugin inside its engines said it."""
    said = []
    for config in aggregate.config_ids:
        found = dict.fromkeys(words for cell in aggregate.measured(config=config) for words in cell.stand_ins)
        if found:
            said.append(f"{clean(aggregate.label_of(config))} ({'; '.join(map(clean, found))})")
    if not said:
        return []
    return [
        f"Stand-ins for the device, and for copies between it and the host: {'. '.join(said)}. What of a connector then runs for real, "
        "what is clocked and what is left out: docs/virtual-gpu.md."
    ]


def _kept_time(aggregate: Aggregate) -> list[str]:
    clocks = _clocks(aggregate)
    if not clocks:
        return []
    late, least = max(c.late_share for c in clocks), min(c.slack_us.p10 for c in clocks)
    host = (
        f"in nine of ten steps the host was done {least:,.0f} µs or more before the device, in the cell with the least"
        if least >= 0
        else f"in the cell with the least to spare, the device waited for the host in one step of ten, by {-least:,.0f} µs or more"
    )
    return [
        f"In its {len(clocks)} usable cells the clock ran late by at most {100 * late:.2f} % of the device's time; {host}."
    ]


def _clocks(aggregate: Aggregate, config: str | None = None) -> list[DeviceClock]:
    """Of the usable cells; those with a device of their own have none."""
    found = (cell.device_clock for cell in aggregate.measured(config=config))
    return [clock for clock in found if clock is not None]


def device_view(aggregate: Aggregate) -> list[ClockRow]:
    """One row per configuration with a clock: how late it was, how busy the device, and what the host had to spare."""
    return [
        _row(aggregate.label_of(config), clocks)
        for config in aggregate.config_ids
        if (clocks := _clocks(aggregate, config))
    ]


def _row(label: str, clocks: Sequence[DeviceClock]) -> ClockRow:
    busy = [c.device_busy_share for c in clocks]
    return ClockRow(
        label=clean(label),
        cells=str(len(clocks)),
        steps=f"{sum(c.steps for c in clocks):,}",
        lateness=_us(median, (c.lateness_us.p50 for c in clocks)),
        late_share=f"{100 * max(c.late_share for c in clocks):.2f} %",
        busy=f"{100 * min(busy):.0f} % to {100 * max(busy):.0f} %",
        slack_p10=_us(min, (c.slack_us.p10 for c in clocks)),
        slack_p50=_us(median, (c.slack_us.p50 for c in clocks)),
    )


def _us(of: Callable[[Iterable[float]], float], values: Iterable[float]) -> str:
    return f"{of(values):,.0f} µs"
