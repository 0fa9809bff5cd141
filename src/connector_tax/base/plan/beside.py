"""What runs beside what in a campaign of several cards: which card a phase's launches stay on, and what a phase waits for.

Cells of a phase are compared with plain's of the same phase. So all launches of a phase stay on one card, and other phases run on the
others; or, where ``engine.mix_cards`` says so or there are no cards, a phase's launches run side by side and one phase follows the other.
"""

from collections.abc import Mapping

from connector_tax.base.config import CampaignConfig
from connector_tax.base.records.cell import Phase, is_repeat


def slot_of(config: CampaignConfig, phase: Phase) -> int | None:
    """The place in ``engine.slots`` on which all launches of ``phase`` stay; None: each may have any."""
    slots = len(config.engine.slots)
    if slots > 1 and config.engine.mixes_cards:
        return None
    return config.phases.index(phase) % slots


def phases_before(config: CampaignConfig, phase: Phase) -> tuple[Phase, ...]:
    """Whose launches have to have ended before those of ``phase`` begin, beside what the reference rates are made of.

    On one card the phase before it. On several the one before it on its own card. Where cards are mixed, the phase before the last, so
    that no card idles while the last launches of a phase are at work; those that are not at work yet come first by their priority.
    """
    place = config.phases.index(phase)
    earlier = tuple(p for p in config.phases[:place] if p != "a")
    if len(config.engine.slots) > 1:
        slot = slot_of(config, phase)
        return (
            earlier[-2:-1] if slot is None else tuple(p for p in earlier if slot_of(config, p) == slot)[-1:]
        )
    if phase in ("b_prime", "c") or (earlier and is_repeat(earlier[-1])):
        return earlier[-1:]
    return earlier if phase == "d" or is_repeat(phase) else ()


def side_by_side_s(config: CampaignConfig, left_s: Mapping[Phase, float]) -> float:
    """What is left of a campaign whose phases take ``left_s`` on one card each, with all of its cards at work."""
    slots = len(config.engine.slots)
    if slots > 1 and config.engine.mixes_cards:
        return sum(left_s.values()) / slots
    # The rates are made of Phase A, so nothing runs beside it.
    beside = [
        sum(s for phase, s in left_s.items() if phase != "a" and slot_of(config, phase) == k)
        for k in range(slots)
    ]
    return left_s.get("a", 0.0) + max(beside)
