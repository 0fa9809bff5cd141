"""Schedules the launches of a campaign on several GPUs: each phase's card, what it waits for, when it ends.

Cells of a phase are compared with plain's cells of the same phase. So all launches of a phase stay on one
card, and other phases use the other cards. With ``engine.mix_cards``, or without GPUs, the launches of one
phase run side by side and phases follow one another.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heappop, heappush

from connector_tax.base.config import CampaignConfig
from connector_tax.base.plan.cells import run_order
from connector_tax.base.records.cell import Phase, is_repeat

# A caveat for every planned time.
SIDE_BY_SIDE = (
    "What engines side by side take from one another is not in these times: where cores are few, a launch"
    " slows its neighbours down."
)
# Phase -> configuration -> seconds of its launch.
RunSeconds = Mapping[Phase, Mapping[str, float]]


def slot_of(config: CampaignConfig, phase: Phase) -> int | None:
    """Return the index in ``engine.slots`` that all launches of ``phase`` use; None: each may use any."""
    slots = len(config.engine.slots)
    if slots > 1 and config.engine.mixes_cards:
        return None
    return config.phases.index(phase) % slots


def phases_before(config: CampaignConfig, phase: Phase) -> tuple[Phase, ...]:
    """Return the phases that must end before ``phase`` begins, apart from those behind the reference rates.

    On one card: the previous phase. On several: the previous phase on the same card. With mixed cards: the
    phase before the previous one, so that no card idles during a phase's last launches; waiting launches of
    earlier phases have the higher priority.
    """
    phases = config.phases
    place = phases.index(phase)
    slots = len(config.engine.slots)
    if slots > 1:
        before = place - (2 if config.engine.mixes_cards else slots)
        return phases[before : before + 1] if before > 0 else ()
    earlier = tuple(p for p in phases[:place] if p != "a")
    if phase in ("b_prime", "c") or (earlier and is_repeat(earlier[-1])):
        return earlier[-1:]
    return earlier if phase == "d" or is_repeat(phase) else ()


def priority_of(config: CampaignConfig, phase: Phase, connector_id: str) -> int:
    """Return a launch's priority, highest first: the phase's seeded random order.

    On several cards every launch of an earlier phase precedes those of later phases.
    """
    order, phases = run_order(config, phase), config.phases
    later = len(phases) - phases.index(phase) if len(config.engine.slots) > 1 else 0
    # Phases launch plain once or twice, so the weight of a phase is that of the largest.
    most = max(len(config.members(p)) for p in phases)
    return most * later + len(order) - order.index(connector_id)


@dataclass(frozen=True, slots=True)
class Turn:
    """One launch of a schedule.

    Attributes:
        place: index of its card in ``engine.slots``.
        begin_s, end_s: seconds since the first launch began.
    """

    phase: Phase
    connector_id: str
    place: int
    begin_s: float
    end_s: float


def schedule(config: CampaignConfig, run_s: RunSeconds, gpus: int | None = None) -> tuple[Turn, ...]:
    """Return the launches of ``run_s`` as Snakemake deals them to the cards, ordered by their end.

    Launches missing from ``run_s`` have ended. Contention between concurrent engines is not modelled.

    Args:
        gpus: most concurrent engines, as ``--resources gpu``; None: one per card.
    """
    slots = len(config.engine.slots)
    most = min(slots, slots if gpus is None else gpus)
    waiting = {
        p: launches
        for p in config.phases
        if (launches := deque(c for c in run_order(config, p) if c in run_s.get(p, ())))
    }
    left = {phase: len(launches) for phase, launches in waiting.items()}
    stays = {phase: slot_of(config, phase) for phase in waiting}
    # All other phases are measured at rates that follow from Phase A.
    before = {p: {*phases_before(config, p), "a"} & left.keys() - {p} for p in waiting}
    ready = [phase for phase in waiting if not before[phase]]
    free, running, found, now_s = set(range(slots)), list[tuple[float, int, Turn]](), list[Turn](), 0.0
    while ready or running:
        for phase in ready:
            launches, place = waiting[phase], stays[phase]
            while launches and len(running) < most and (place is None or place in free):
                own = min(free) if place is None else place
                connector_id = launches.popleft()
                turn = Turn(phase, connector_id, own, now_s, now_s + run_s[phase][connector_id])
                free.remove(own)
                heappush(running, (turn.end_s, own, turn))
        now_s, own, turn = heappop(running)
        free.add(own)
        found.append(turn)
        left[turn.phase] -= 1
        if not left[turn.phase]:
            ended = {turn.phase}
            ready += [p for p in waiting if before[p] and before[p] <= ended]
            before = {p: of - ended for p, of in before.items()}
        ready = [p for p in waiting if p in ready and waiting[p]]
    return tuple(found)


def wall_s(config: CampaignConfig, run_s: RunSeconds, gpus: int | None = None) -> float:
    """Return how long the launches of ``run_s`` take together, by ``schedule``."""
    return max((turn.end_s for turn in schedule(config, run_s, gpus)), default=0.0)
