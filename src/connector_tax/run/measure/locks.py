"""Locks: one measurement at a time per card, per run, and per campaign unless its engines run side by side.

Snakemake's own lock is off, since it survives ``kill -9``. These are ``flock`` locks, which the kernel
drops when their holder ends.
"""

import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic

from connector_tax.base.artifacts.layout import CampaignFolder, RunFolder
from connector_tax.base.artifacts.supervisor import recorded_supervisor
from connector_tax.base.config import CampaignConfig, EngineConfig
from connector_tax.base.errors import ConfigError, EngineError
from connector_tax.base.locks import cache_folder, holder_of, name_holder, open_lock, take_lock
from connector_tax.base.plan import slot_of
from connector_tax.base.records.cell import phase_word
from connector_tax.base.units import duration_text, is_number
from connector_tax.run.engine.gpus import Cards, Slot, slots_of
from connector_tax.run.engine.supervised import end_all_leftovers, end_leftovers, recorded_below
from connector_tax.run.measure.time_left import OutOfTime, TimeLimit, in_batch_job

# Choose a run's card if engines run side by side, and end what killed neighbours left there.

CLEARING = "what killed measurements left"


@contextmanager
def on_a_card(
    folder: CampaignFolder,
    config: CampaignConfig,
    run: RunFolder,
    say: Callable[[str], None],
    limit: TimeLimit | None = None,
) -> Iterator[Slot]:
    """Hold the slot on which ``run`` is measured, free of processes that a killed measurement left.

    Args:
        say: receives who is waited for, and since when.
        limit: when measuring must be over; bounds the wait.

    Raises:
        ConfigError: there is no such card.
        EngineError: another process measures there; names it.
        OutOfTime: another process did until no launch fitted.
    """
    with waiting_within(limit) as until_s, _on_a_card(folder, config, run, say, until_s) as slot:
        yield slot


@contextmanager
def waiting_within(limit: TimeLimit | None) -> Iterator[float]:
    """Yield until when, on the clock of ``time.monotonic``, the body may wait for others.

    Raises:
        OutOfTime: it waited until then.
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
    config: CampaignConfig,
    run: RunFolder,
    say: Callable[[str], None],
    until_s: float,
) -> Iterator[Slot]:
    slots = slots_of(config.engine)
    for note in dict.fromkeys(s.cards.note for s in slots if s.cards.note):
        say(note)
    grace_s = config.engine.stop_grace_s
    waiting = Waiting(wait_for_card_s(config.engine), until_s, say)
    if len(config.engine.slots) == 1:
        (slot,) = slots
        port = config.engine.port
        with measuring_alone(folder.root, config.campaign, slot.cards, port, waiting):
            end_all_leftovers(folder.root, grace_s=grace_s)
            yield slot
        return
    run_label = f"phase {phase_word(run.phase)} of {run.connector_id}"
    holder = holder_words(folder.root, config.campaign, run_label)
    campaign_label = f"campaign {config.campaign}"
    with (
        held(folder.lock, campaign_label, holder, waiting, shared=True),
        held(folder.run_lock(run), run_label, holder, waiting),
    ):
        # Before a slot is taken: its new holder must not take this run's leftover for a neighbour.
        _clear(folder, run, None, holder, grace_s, until_s)
        # The launch refuses a phase that began on another card.
        slot_index = slot_of(config, run.phase)
        allowed_slots = slots if slot_index is None else [slots[slot_index % len(slots)]]
        with first_free(allowed_slots, holder, waiting) as slot:
            _clear(folder, run, slot.cards, holder, grace_s, until_s)
            yield slot


def _clear(
    folder: CampaignFolder,
    own_run: RunFolder,
    cards: Cards | None,
    holder: str,
    grace_s: float,
    until_s: float,
) -> None:
    """End what is recorded of ``own_run``, on ``cards``, and of runs that nobody measures, one at a time."""
    card_names = set() if cards is None else set(cards.names)
    runs = {run.path: run for run in folder.runs()}
    # Clearing takes seconds, so it is waited for like a job that is about to end.
    with held(folder.clearing_lock, CLEARING, holder, Waiting(10 * grace_s + 60, until_s)):
        for run_path in recorded_below(folder.root):
            supervisor = recorded_supervisor(run_path)
            if (
                run_path == own_run.path
                or run_path not in runs
                or (supervisor is not None and card_names & set(supervisor.cards))
            ):
                end_leftovers(run_path, grace_s=grace_s)
                continue
            with open_lock(folder.run_lock(runs[run_path]), str(run_path)) as lock:
                if take_lock(lock, str(run_path)):
                    end_leftovers(run_path, grace_s=grace_s)


# After kill -9 of Snakemake its job needs a moment to notice and to stop its engine.
WAIT_S = 30.0
WAIT_VARIABLE = "CONNECTOR_TAX_WAIT_FOR_CARD_S"
# When a wait is reported: the first delay spares a job that is just ending.
SAY_AFTER_S, SAY_EVERY_S = 3.0, 30.0
POLL_S = 0.2


def wait_for_card_s(engine: EngineConfig) -> float:
    """Return the wait for a card in use: CONNECTOR_TAX_WAIT_FOR_CARD_S, else ``engine.wait_for_card_s``.

    The default is ``WAIT_S``, so that a campaign started twice ends soon. It is infinite if the
    campaign's own engines wait for one another, and in a batch job, since an earlier start's job may
    have outlived its Snakemake.

    Raises:
        ConfigError: the variable is no number of seconds.
    """
    setting = os.environ.get(WAIT_VARIABLE, "").strip()
    if setting == "inf":
        return math.inf
    if setting:
        if not is_number(setting):
            raise ConfigError(f"{WAIT_VARIABLE}={setting}: no whole number of seconds. Give one, or inf.")
        return float(setting)
    if engine.wait_for_card_s is not None:
        return float(engine.wait_for_card_s)
    return math.inf if len(engine.slots) > 1 or in_batch_job(os.environ) else WAIT_S


class InUse(EngineError):
    """A lock stayed in use until the wait was over.

    Attributes:
        waited_for: what, and who holds it.
    """

    def __init__(self, message: str, waited_for: str) -> None:
        super().__init__(message)
        self.waited_for = waited_for


def say_on_stderr(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class Waiting:
    """How to wait for a lock.

    Attributes:
        wait_s: None: ``WAIT_S``.
        until_s: end of any wait, on the clock of ``time.monotonic``.
        say: receives who is waited for, and since when.
    """

    wait_s: float | None = None
    until_s: float = math.inf
    say: Callable[[str], None] = say_on_stderr


# (lock file, what it stands for)
Lock = tuple[Path, str]


@contextmanager
def _hold_first(
    choices: Sequence[Sequence[Lock]], holder: str, waiting: Waiting, *, shared: bool = False
) -> Iterator[int]:
    """Hold all locks of the first choice whose locks are all free; yield its index.

    Raises:
        InUse: every choice stayed in use; names the holders.
    """
    begun_s, next_s = time.monotonic(), SAY_AFTER_S
    wait_s = min(WAIT_S if waiting.wait_s is None else waiting.wait_s, waiting.until_s - begun_s)
    while True:
        in_use: list[tuple[str, str, Path]] = []
        for index, locks in enumerate(choices):
            with ExitStack() as stack:
                conflict = _take(locks, holder, stack, shared)
                if conflict is None:
                    yield index
                    return
                in_use.append(conflict)
        waited_s = time.monotonic() - begun_s
        waited_for = "; ".join(
            f"{label}, in use by process {current_holder}" for label, current_holder, _ in in_use
        )
        if waited_s > wait_s:
            uses = "; ".join(
                f"{label} is in use by process {current_holder} (lock {path})"
                for label, current_holder, path in in_use
            )
            raise InUse(
                f"{uses}. Two measurements at once would measure each other; wait for it to end, or end that"
                f" process, then start again. engine.wait_for_card_s or {WAIT_VARIABLE} says how long it is"
                f" waited for ({wait_s:g} s).",
                waited_for,
            )
        if waited_s >= next_s:
            next_s = waited_s + SAY_EVERY_S
            wait_limit = "without end" if math.isinf(wait_s) else f"for {duration_text(wait_s)} at most"
            waiting.say(f"waiting for {waited_for}; {duration_text(waited_s)} so far, {wait_limit}")
        time.sleep(POLL_S)


def _take(locks: Sequence[Lock], holder: str, stack: ExitStack, shared: bool) -> tuple[str, str, Path] | None:
    """Take all ``locks``; return what is in use, by whom, and its path if one is taken."""
    for path, label in locks:
        lock = stack.enter_context(open_lock(path, label))
        if not take_lock(lock, label, shared=shared):
            return label, holder_of(lock), path
        name_holder(lock, label, f"{holder}\n" if shared else holder)
    return None


@contextmanager
def measuring_alone(
    root: Path, campaign: str, cards: Cards, port: int = 0, waiting: Waiting = Waiting()
) -> Iterator[None]:
    """Hold the campaign's folder, its cards and its port for the body.

    Args:
        port: ``run.engine.port``; a starting engine has bound it but does not listen
            yet, so it cannot be seen.

    Raises:
        EngineError: another process held one of them throughout the wait; names it and its campaign.
    """
    locks = [(root / ".lock", f"campaign {campaign}"), *_locks(cards, port)]
    with _hold_first([locks], holder_words(root, campaign), waiting):
        yield


@contextmanager
def first_free(slots: Sequence[Slot], holder: str, waiting: Waiting) -> Iterator[Slot]:
    """Hold the first of ``slots`` whose cards and port are free.

    Raises:
        EngineError: none was free throughout the wait; names the holders.
    """
    with _hold_first([_locks(slot.cards, slot.engine.port) for slot in slots], holder, waiting) as index:
        yield slots[index]


def _lock_file(name: str) -> Path:
    return cache_folder() / "locks" / f"{name}.lock"


def _locks(cards: Cards, port: int) -> list[Lock]:
    """Return the locks in an order that all campaigns share, against deadlock."""
    ports = [(_lock_file(f"port{port}"), f"engine.port {port}")] if port else []
    if not cards.gpus:
        return [*ports, (_lock_file(cards.names[0]), cards.words)]
    card_locks = sorted((gpu.uuid.replace("/", "_"), str(gpu)) for gpu in cards.gpus)
    return [*ports, *((_lock_file(name), label) for name, label in card_locks)]


def holder_words(root: Path, campaign: str, run: str = "") -> str:
    """Return who holds a lock, for what, and since when.

    Args:
        run: which of the campaign's, if there may be several at once.
    """
    activity = f"measures {run} of campaign {campaign}" if run else f"works on campaign {campaign}"
    return (
        f"{os.getpid()}, which {activity} in {root.resolve()} since {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
    )


@contextmanager
def held(
    path: Path, label: str, holder: str, waiting: Waiting = Waiting(), *, shared: bool = False
) -> Iterator[None]:
    """Hold the lock at ``path`` for the body.

    Args:
        holder: description for others who want it meanwhile.
        shared: allow other shared holders; an exclusive caller is told of the last of them.

    Raises:
        EngineError: another process held it throughout the wait, or it cannot be locked at all.
    """
    with _hold_first([[(path, label)]], holder, waiting, shared=shared):
        yield
