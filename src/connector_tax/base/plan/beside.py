"""What runs beside what in a campaign of several cards: which card a phase's launches stay on, what a phase
waits for, and when it is done.

Cells of a phase are compared with plain's of the same phase. So all launches of a phase stay on one card, and
other phases run on the others; or, where ``engine.mix_cards`` says so or there are no cards, a phase's
launches run side by side and one phase follows the other.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heappop, heappush

from connector_tax.base.config import CampaignConfig
from connector_tax.base.plan.order import run_order
from connector_tax.base.records.cell import Phase, is_repeat

# What no time of a plan holds.
SIDE_BY_SIDE = (
    "What engines side by side take from one another is not in these times: where cores are few, a launch"
    " slows its neighbours down."
)
# Of each phase what launches of it take, by configuration.
RunSeconds = Mapping[Phase, Mapping[str, float]]


def slot_of(config: CampaignConfig, phase: Phase) -> int | None:
    """The place in ``engine.slots`` on which all launches of ``phase`` stay; None: each may have any."""
    slots = len(config.engine.slots)
    if slots > 1 and config.engine.mixes_cards:
        return None
    return config.phases.index(phase) % slots


def phases_before(config: CampaignConfig, phase: Phase) -> tuple[Phase, ...]:
    """Whose launches have to have ended before those of ``phase`` begin, beside what the reference rates are
    made of.

    On one card the phase before it. On several the one before it on its own card. Where cards are mixed, the
    phase before the last, so that no card idles while the last launches of a phase are at work; those that
    are not at work yet come first by their priority.
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
    """The higher, the sooner: by the phase's seeded random order; on several cards earlier phases come before
    all later ones."""
    order, phases = run_order(config, phase), config.phases
    later = len(phases) - phases.index(phase) if len(config.engine.slots) > 1 else 0
    # Phases launch plain once or twice: what a place weighs is one and the same for all of them.
    most = max(len(config.members(p)) for p in phases)
    return most * later + len(order) - order.index(connector_id)


@dataclass(frozen=True, slots=True)
class Turn:
    """One launch of a schedule.

    Attributes:
        place: of its card in ``engine.slots``.
        begin_s, end_s: since the first launch began.
    """

    phase: Phase
    connector_id: str
    place: int
    begin_s: float
    end_s: float


def schedule(config: CampaignConfig, run_s: RunSeconds, gpus: int | None = None) -> tuple[Turn, ...]:
    """The launches of ``run_s`` as Snakemake deals them out to the cards, in the order in which they end.

    Launches that are not in it have ended. What engines side by side take from one another is in no time
    here.

    Args:
        gpus: engines at the same time at most, as ``--resources gpu``; None: as many as there are cards.
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
    # Everything else is measured at rates that are made of Phase A.
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
    """How long the launches of ``run_s`` take together; as ``schedule``."""
    return max((turn.end_s for turn in schedule(config, run_s, gpus)), default=0.0)
