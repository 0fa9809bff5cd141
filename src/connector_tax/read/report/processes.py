"""What each engine process takes of the host, as a table: idle, and loaded at ref_safe."""

from collections.abc import Mapping
from dataclasses import dataclass

from connector_tax.base.documents.aggregate import Aggregate, CpuUse
from connector_tax.read.report.questions import loaded_cells


@dataclass(frozen=True, slots=True)
class Line:
    """Of one process, or of all."""

    process: str
    idle: str
    loaded: str
    rss: str
    spinning: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Processes:
    label: str
    rows: list[Line]


def processes_view(aggregate: Aggregate) -> list[Processes]:
    """One entry per configuration with a Phase A cell at ref_safe, plain first; each with one row per process."""
    return [
        Processes(aggregate.label_of(config), lines)
        for config in aggregate.config_ids
        for cell in loaded_cells(aggregate, config)
        if (lines := _lines(cell.cpu_use))
    ]


def _lines(cpu: CpuUse) -> list[Line]:
    names = sorted({*cpu.loaded_s, *cpu.idle_share, *cpu.rss_mib})
    shares = {name: s / cpu.elapsed_s for name, s in cpu.loaded_s.items() if cpu.elapsed_s}
    lines = [
        Line(
            name,
            _cores(cpu.idle_share.get(name)),
            _cores(shares.get(name)),
            _mib(cpu.rss_mib.get(name)),
            tuple(f"{s.thread} ({100 * s.share:.0f} % of a core)" for s in cpu.spinning if s.process == name),
        )
        for name in names
    ]
    if len(names) > 1:
        in_order = {name: shares[name] for name in names if name in shares}
        lines.append(
            Line("all", _cores(_sum(cpu.idle_share)), _cores(_sum(in_order)), _mib(_sum(cpu.rss_mib)))
        )
    return lines


def _sum(values: Mapping[str, float]) -> float | None:
    return sum(values.values()) if values else None


def _cores(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _mib(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"
