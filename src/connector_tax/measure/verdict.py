"""Whether a cell may enter the statistics: a bad measurement is data, not an exception."""

from dataclasses import dataclass
from typing import Any

from connector_tax.records.cell import CellWindow

# Sampler and kernel took 1.7 % of two cores (median of 108 cells, at most 4.9 %); of a larger host it is less.
MAX_OTHERS_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Verdict:
    """``invalid`` cells stay on disk, are counted in the report and left out of every statistic.

    ``flags`` qualify a valid cell; they travel with its numbers.
    """

    valid: bool
    reasons: tuple[str, ...]
    flags: tuple[str, ...]

    @property
    def word(self) -> str:
        return "valid" if self.valid else "invalid"


def judge(
    window: CellWindow,
    health: dict[str, Any],
    *,
    prefix_cache_hits_delta: float | None,
    hits_wanted: bool = False,
    steps_agree: bool = True,
    others_share: float | None = None,
    engine_death: str | None,
) -> Verdict:
    """The verdict of one cell.

    Args:
        health: the load generator's proof of itself, see ``loadgen/health.py``.
        prefix_cache_hits_delta: tokens found in the prefix cache during the cell; None where the
            engine does not export the counter.
        hits_wanted: the cell's prompts repeat what was said before, as conversations do; elsewhere a hit means that
            a prompt was not new, and the cell measured something else.
        steps_agree: whether there are as many step records as iterations by the engine's own count.
        others_share: of all cores' time, what neither engine nor client took; None where that is not known.
        engine_death: the root cause if the engine died in this cell.
    """
    reasons = []
    flags = []
    if engine_death is not None:
        reasons.append(f"engine died: {engine_death}")
    if hits_wanted and prefix_cache_hits_delta == 0:
        flags.append("prefix_cache_never_hit")
    if not hits_wanted and prefix_cache_hits_delta is not None and prefix_cache_hits_delta != 0:
        reasons.append(
            f"prefix cache hits: {prefix_cache_hits_delta:g} tokens of prompts that should be new were cached"
        )
    if prefix_cache_hits_delta is None:
        flags.append("prefix_cache_unchecked")
    if not steps_agree:
        flags.append("step_records_incomplete")
    reasons += health.get("bottleneck", [])
    if others_share is not None and others_share > MAX_OTHERS_SHARE:
        flags.append("host_busy")
    flags += window.flags
    flags += [flag for flag in ("client_limited", "client_stalled") if health.get(flag)]
    if health.get("cores_shared") is not None:
        flags.append("cores_shared")
    return Verdict(not reasons, tuple(reasons), tuple(flags))
