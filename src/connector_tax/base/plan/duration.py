"""Estimates how long a campaign takes, for progress lines, status and rehearsals; never for measuring."""

from collections.abc import Callable, Collection, Mapping, Sequence

from connector_tax.base.capacity import RANDOM_ARRIVALS
from connector_tax.base.config import CampaignConfig
from connector_tax.base.plan.cells import cells_of, until_overload
from connector_tax.base.plan.estimate import Expected, estimated_rates, expected_of
from connector_tax.base.plan.gpu_slots import wall_s
from connector_tax.base.records.cell import CellSpec, Phase, Shape
from connector_tax.base.records.rates import ReferenceRates

# A launch of a 30B model takes one to three minutes; the published experiment budgets 90 s. On a virtual GPU,
# which loads no weights and captures nothing, it is 12 to 17 s, most of it imports. The embedded engine needs
# about 2 s.
LAUNCH_S = {"vllm": 90.0, "virtual_gpu": 17.0, "emulator": 2.0}
# The published experiment pauses for 60 s. Here the engine gets engine.stop_grace_s (20 s) to end and takes a
# few of them; the driver then takes a few seconds to release its memory. A virtual GPU has none to release.
RELEASE_S = {"vllm": 30.0, "virtual_gpu": 3.0, "emulator": 0.5}
# Between cells the engine is idle, because a cell's step records are cut out by time.
GAP_S = 1.0


def expected_cell_s(cell: CellSpec, requests_per_s: float, *, most: bool = False) -> float:
    """Return warm-up plus the window's minimum or the time to its completions, whichever is longer.

    Args:
        most: with a stopping rule, assume the last interim analysis, not the first.
    """
    completed = (cell.max_completed or cell.min_completed) if most else cell.min_completed
    # A closed loop has no rate, so the time of its few requests is unknown.
    window_s = max(cell.duration_s, completed / requests_per_s if requests_per_s else 0.0)
    return min(cell.warmup_s + window_s, cell.max_cell_s)


def requests_per_s(config: CampaignConfig, cell: CellSpec) -> float:
    """Return the rate of a cell's requests, for sessions that of their turns; 0 in a closed loop."""
    turns = {file.path: file.turns_per_session for file in config.phase_c.sessions}
    return cell.rate_per_s if cell.sessions is None else cell.rate_per_s * turns[cell.sessions]


def expected_run_s(
    config: CampaignConfig,
    connector_id: str,
    phase: Phase,
    rates: ReferenceRates,
    *,
    most: bool = False,
    expected: Expected | None = None,
    finished: Collection[str] = (),
) -> float:
    """Return the time of one (configuration, phase): launch, cells, accuracy pass, release; 0 without cells.

    Args:
        rates: the reference rates, or an estimate of them before Phase A has ended.
        most: assume the last interim analysis in every cell.
        expected: the engine's estimated costs; without them no cell counts as overloaded, and requests after
            a cell's window and those of the accuracy pass take no time.
        finished: ids of cells that exist already; another launch and the other cells are left.
    """
    cells = cells_of(config, connector_id, phase, rates)
    # If both reference rates are equal, Phase B has measured these cells.
    if not cells or (phase == "b_prime" and rates.ref_load_per_s == rates.ref_safe_per_s):
        return 0.0
    too_much: set[str] = set()
    if phase == "a" and expected is not None:
        too_much = {c.cell_id for c in cells if expected.overloads(connector_id, c.rate_per_s, c.shape)}
        cells = until_overload(config, cells, lambda c: c.cell_id in too_much)
    cells = tuple(c for c in cells if c.cell_id not in finished)
    total_s = LAUNCH_S[config.engine.kind] + RELEASE_S[config.engine.kind] + GAP_S * len(cells)
    for cell in cells:
        if cell.cell_id in too_much:
            # A cell with a growing queue ends with its window and does not drain.
            total_s += cell.warmup_s + cell.duration_s
            continue
        # With random arrivals latencies vary so much that the first interim analyses do not end a cell.
        total_s += expected_cell_s(
            cell, requests_per_s(config, cell), most=most or cell.arrival in RANDOM_ARRIVALS
        )
        if expected is not None and phase not in ("c", "d"):
            total_s += expected.request_s(connector_id, cell.shape)
    return total_s + (answers_s(config, connector_id, phase, expected) if expected is not None else 0.0)


def answers_s(config: CampaignConfig, connector_id: str, phase: Phase, expected: Expected) -> float:
    """Return the time of a launch's accuracy pass, which sends one request after the other."""
    accuracy = config.accuracy
    if phase not in ("a", "b") or not accuracy.prompts:
        return 0.0
    asked = Shape(accuracy.input_tokens, accuracy.output_tokens)
    return accuracy.prompts * expected.request_s(connector_id, asked)


def asked_in_preflight_s(config: CampaignConfig, expected: Expected) -> dict[str, float]:
    """Return configuration -> time of its preflight requests: a warm-up of each length, and a few more."""
    asked_s = {}
    for connector in config.connectors:
        # Preflight times plain with three more of each.
        times = 4 if connector.id == "plain" else 1
        lengths = {*config.phase_b_input_tokens, config.phase_a_shape.input_tokens}
        warm_s = sum(expected.request_s(connector.id, Shape(length, 1)) for length in sorted(lengths))
        asked_s[connector.id] = times * warm_s + connector.verify_requests * expected.request_s(
            connector.id, Shape(32, 32)
        )
    return asked_s


def expected_preflight_s(config: CampaignConfig, expected: Expected | None) -> float:
    """Return the time of preflight, which launches one configuration after the other before all else."""
    kind = config.engine.kind
    asked_s = 0.0 if expected is None else sum(asked_in_preflight_s(config, expected).values())
    return len(config.connectors) * (LAUNCH_S[kind] + RELEASE_S[kind]) + asked_s


def expected_left_s(
    config: CampaignConfig,
    left: Mapping[Phase, Sequence[str]],
    rates: ReferenceRates | None,
    skips: Callable[[str], bool] | None,
    finished: Callable[[Phase, str], Collection[str]] | None = None,
) -> float:
    """Return the remaining time of a campaign.

    Args:
        left: phase -> its configurations that have not ended.
        rates: None before Phase A has ended.
        skips: whether a configuration is no longer launched, because preflight skipped it or it failed in
            Phase A; None before preflight, whose time then counts.
        finished: returns the existing cells of an unfinished run; None if there are none.
    """
    if not left:
        return 0.0
    expected = expected_of(config)
    known = rates or estimated_rates(config, expected, skips)
    run_s = {
        phase: {
            c: 0.0
            if skips is not None and skips(c)
            else expected_run_s(
                config,
                c,
                phase,
                known,
                expected=expected,
                finished=() if finished is None else finished(phase, c),
            )
            for c in ids
        }
        for phase, ids in left.items()
    }
    before_s = expected_preflight_s(config, expected) if skips is None else 0.0
    return before_s + wall_s(config, run_s)
