"""How long the plan should take; for progress lines and rehearsals, never for measuring."""

from connector_tax.base.config import CampaignConfig
from connector_tax.base.plan.cells import cells_of
from connector_tax.base.records.cell import CellSpec, Phase
from connector_tax.base.records.rates import ReferenceRates

# A launch of a 30B model takes one to three minutes; the published experiment budgets 90 s. On a virtual GPU, which
# loads no weights and captures nothing, it is 12 to 17 s, most of it imports. The embedded engine needs about 2 s.
LAUNCH_S = {"vllm": 90.0, "virtual_gpu": 17.0, "emulator": 2.0}
# The published experiment pauses for 60 s. Here the engine has engine.stop_grace_s (20 s) to end, which it needs seconds of, and
# then its memory is asked for until the driver has it back, which is seconds, too.
# A virtual GPU has none to give back.
RELEASE_S = {"vllm": 30.0, "virtual_gpu": 3.0, "emulator": 0.5}


def expected_cell_s(cell: CellSpec, requests_per_s: float, *, most: bool = False) -> float:
    """Warm-up, then the window's floor or the time to its completions, whichever is longer.

    Args:
        most: with a stopping rule, up to its last look and not to the first.
    """
    completed = (cell.max_completed or cell.min_completed) if most else cell.min_completed
    # A closed loop has no rate; how long its few requests take is not known before.
    window_s = max(cell.duration_s, completed / requests_per_s if requests_per_s else 0.0)
    return min(cell.warmup_s + window_s, cell.max_cell_s)


def expected_run_s(
    config: CampaignConfig, connector_id: str, phase: Phase, rates: ReferenceRates, *, most: bool = False
) -> float:
    """One (configuration, phase): launch, cells, release; 0 where it has no cells.

    Args:
        rates: of the other phases, or a guess while Phase A still runs.
        most: every cell up to its last look.
    """
    cells = cells_of(config, connector_id, phase, rates)
    if not cells:
        return 0.0
    kind = config.engine.kind
    # Sessions have a rate of their own; their turns come at the reference rate.
    cells_s = sum(
        expected_cell_s(c, c.rate_per_s if phase != "c" else rates.ref_safe_per_s, most=most) for c in cells
    )
    return LAUNCH_S[kind] + cells_s + RELEASE_S[kind]


def guessed_rates(config: CampaignConfig) -> ReferenceRates:
    """While nothing is known: the middle of Phase A's rates."""
    middle = config.phase_a_rates_per_s[len(config.phase_a_rates_per_s) // 2]
    return ReferenceRates(middle, middle)
