"""On which card a run is measured, in a campaign whose engines may run side by side; and what killed neighbours left there.

Locks, in this order: the campaign's, shared, which keeps out preflight and whoever wants the campaign to himself; the run's; one
place's cards and port. Who holds a place is the only one with an engine there. So an engine that is recorded on its cards is a
leftover, and so is any of a run that nobody holds; all others are neighbours at work.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic

from connector_tax.base.artifacts.cells import read_cell
from connector_tax.base.artifacts.layout import CampaignFolder, RunFolder
from connector_tax.base.artifacts.supervisor import recorded_supervisor
from connector_tax.base.config import CampaignConfig
from connector_tax.base.documents.identity import EngineIdentity
from connector_tax.base.errors import ConfigError
from connector_tax.base.locks import open_lock, take_lock
from connector_tax.base.plan import slot_of
from connector_tax.base.records.cell import Phase, phase_word
from connector_tax.run.engine.gpus import Cards
from connector_tax.run.engine.leftovers import end_all_leftovers, end_leftovers, recorded_below
from connector_tax.run.engine.slots import Slot, slots_of
from connector_tax.run.measure.locks import (
    InUse,
    first_free,
    held,
    holder_words,
    measuring_alone,
    wait_for_card_s,
)
from connector_tax.run.measure.time_left import OutOfTime, TimeLimit

CLEARING = "what killed measurements left"


@contextmanager
def on_a_card(
    folder: CampaignFolder,
    date: str,
    config: CampaignConfig,
    run: RunFolder,
    say: Callable[[str], None],
    limit: TimeLimit | None = None,
) -> Iterator[Slot]:
    """The place that ``run`` is measured at, for the body; nothing that a killed measurement left is at work there.

    Args:
        say: told for whom is waited, and since when.
        limit: by when measuring has to be over. Nobody is waited for until after it.

    Raises:
        ConfigError: there is no such card, or the phase was begun on one that this campaign no longer has.
        EngineError: somebody else measures there; names the process.
        OutOfTime: somebody else did until no launch fitted any more.
    """
    with waiting_within(limit) as until_s, _on_a_card(folder, date, config, run, say, until_s) as slot:
        yield slot


@contextmanager
def waiting_within(limit: TimeLimit | None) -> Iterator[float]:
    """By when, on the clock of ``time.monotonic``, the body may wait for others.

    Raises:
        OutOfTime: it did until then.
    """
    try:
        yield math.inf if limit is None else limit.last_launch_s
    except InUse as busy:
        if limit is None or monotonic() < limit.last_launch_s:
            raise
        raise OutOfTime(f"waited for {busy.waited_for}, until no launch fitted any more") from busy


@contextmanager
def _on_a_card(
    folder: CampaignFolder,
    date: str,
    config: CampaignConfig,
    run: RunFolder,
    say: Callable[[str], None],
    until_s: float,
) -> Iterator[Slot]:
    slots = slots_of(config.engine)
    for note in dict.fromkeys(s.cards.note for s in slots if s.cards.note):
        say(note)
    grace_s, wait_s = config.engine.stop_grace_s, wait_for_card_s(config.engine)
    if len(config.engine.slots) == 1:
        (slot,) = slots
        port = config.engine.port
        with measuring_alone(
            folder.root, config.campaign, slot.cards, port, wait_s=wait_s, until_s=until_s, say=say
        ):
            end_all_leftovers(folder.root, grace_s=grace_s)
            yield slot
        return
    words = f"phase {phase_word(run.phase)} of {run.connector_id}"
    who = holder_words(folder.root, config.campaign, words)
    what = f"campaign {config.campaign}"
    with (
        held(folder.lock, what, who, shared=True, wait_s=wait_s, until_s=until_s, say=say),
        held(folder.run_lock(run), words, who, wait_s=wait_s, until_s=until_s, say=say),
    ):
        # Before a place is taken: whoever has the one that this run was on may not take its leftover for a neighbour.
        _clear(folder, run, None, who, grace_s, until_s)
        wanted = _of_the_phase(folder, date, config, run.phase, slots)
        with first_free(wanted, who, wait_s=wait_s, until_s=until_s, say=say) as slot:
            _clear(folder, run, slot.cards, who, grace_s, until_s)
            yield slot


def _clear(
    folder: CampaignFolder, own: RunFolder, cards: Cards | None, who: str, grace_s: float, until_s: float
) -> None:
    """End what is recorded of ``own``, on ``cards``, and of every run that nobody measures; one at a time."""
    mine = set() if cards is None else set(cards.names)
    runs = {run.path: run for run in folder.runs()}
    # Who ends something is done in seconds, so it is waited for as a job is that is just ending.
    with held(folder.clearing_lock, CLEARING, who, wait_s=10 * grace_s + 60, until_s=until_s):
        for place in recorded_below(folder.root):
            found = recorded_supervisor(place)
            if place == own.path or place not in runs or (found is not None and mine & set(found.cards)):
                end_leftovers(place, grace_s=grace_s)
                continue
            with open_lock(folder.run_lock(runs[place]), str(place)) as lock:
                if take_lock(lock, str(place)):
                    end_leftovers(place, grace_s=grace_s)


def _of_the_phase(
    folder: CampaignFolder, date: str, config: CampaignConfig, phase: Phase, slots: Sequence[Slot]
) -> Sequence[Slot]:
    """The places that a launch of ``phase`` may take.

    A phase that was begun goes on where it was begun, also where the config has other phases or more cards since.

    Raises:
        ConfigError: it was begun on a card that is not among those of the campaign any more.
    """
    place = slot_of(config, phase)
    if place is None:
        return slots
    begun = _begun_on(folder, date, config, phase)
    if begun is None:
        return [slots[place % len(slots)]]
    same = [slot for slot in slots if _is(slot, begun)]
    if not same:
        there = " and ".join(begun.gpu) or f"place {begun.slot} on this host"
        raise ConfigError(
            f"phase {phase_word(phase)} was begun on {there}, and its cells are compared with one another. This campaign has "
            f"{'; '.join(s.cards.words for s in slots)}. Name that card under engine.gpus again, let cards be mixed (engine.mix_cards: "
            f"true), or remove the phase's folders ({folder.root}/{date}_*/{_name(folder, date, config, phase)}) to have it measured anew."
        )
    return same


def _name(folder: CampaignFolder, date: str, config: CampaignConfig, phase: Phase) -> str:
    return folder.run(date, config.members(phase)[0], phase).path.name


def _begun_on(
    folder: CampaignFolder, date: str, config: CampaignConfig, phase: Phase
) -> EngineIdentity | None:
    """Of a finished cell of the phase; None where there is none, or none that says on which card it was measured."""
    for connector_id in config.members(phase):
        for cell in folder.run(date, connector_id, phase).finished_cells():
            engine = read_cell(cell).engine
            if engine.gpu or engine.has_slot:
                return engine
    return None


def _is(slot: Slot, engine: EngineIdentity) -> bool:
    if engine.gpu or slot.cards.gpus:
        return engine.gpu == tuple(map(str, slot.cards.gpus))
    return engine.slot == slot.cards.slot
