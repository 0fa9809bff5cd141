"""Engines of several configurations up at once, all but one stopped: each load is served by one after the other, seconds apart.

A host's cores differ in speed from one minute to the next. Launches that are made one after the other serve the same load minutes apart, and that
difference stands in the tax; here it is seconds. What is launched, loaded and written is what ``run.py`` launches, loads and writes. Receipts are
left to ``measure_run``, which launches for what is missing.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from connector_tax.base.documents.cell import IdleUse
from connector_tax.base.documents.preflight import PreflightStatus
from connector_tax.base.documents.rates import ReferenceRatesFile
from connector_tax.base.documents.reading import read_document
from connector_tax.base.plan import cells_of, read_campaign_file
from connector_tax.base.records.cell import CellSpec, Phase
from connector_tax.base.records.connector import PLAIN_AGAIN
from connector_tax.base.records.rates import ReferenceRates
from connector_tax.run.engine.asleep import awake, put_to_sleep, wake
from connector_tax.run.engine.leftovers import end_all_leftovers
from connector_tax.run.engine.process import LaunchError
from connector_tax.run.measure.deaths import Death
from connector_tax.run.measure.launch import Starting, sampled, sampler, starting
from connector_tax.run.measure.locks import measuring_alone
from connector_tax.run.measure.pending import Guest, is_there, measure_guest, measure_pending, pending_cells
from connector_tax.run.measure.standing import Run, open_run

# How the root cause of an engine begins that was killed without a word, for instance for want of memory.
HOSTS_KILL = "killed by SIGKILL"


@dataclass(frozen=True, slots=True)
class Turns:
    """What became of it.

    Attributes:
        deaths: by configuration, of its engine while it was asked.
        not_launched: the configuration that preflight left out or whose engine did not get ready, so that nothing was measured; None where all did.
    """

    deaths: dict[str, tuple[Death, ...]]
    not_launched: str | None = None


@dataclass(frozen=True, slots=True)
class _Member:
    """One configuration with its engine.

    Attributes:
        idle: what the engine takes while nobody asks.
    """

    run: Run
    cells: tuple[CellSpec, ...]
    launch: Starting
    idle: IdleUse

    @property
    def lives(self) -> bool:
        return not self.run.deaths


def measure_in_turns(
    campaign_file: Path,
    names: Mapping[str, str],
    phase: Phase,
    *,
    then: Mapping[str, Phase],
    say: Callable[[str], None],
) -> Turns:
    """Launch all configurations together and have each load of ``phase`` served by one after the other.

    The order alternates from load to load, so whoever stands in the middle lies between the same two each time.

    Args:
        names: configuration -> what ``say`` calls it, in order; at least two, whose loads are the same.
        then: configuration -> a phase whose cells its engine serves alone after the loads.
        say: told what begins.

    Raises:
        EngineError: the host failed, or another measurement holds the campaign.
    """
    runs = [open_run(campaign_file, connector_id, phase) for connector_id in names]
    first = runs[0]
    decisions = read_document(first.folder.preflight_status, PreflightStatus).configs
    for run in runs:
        if decisions["plain" if run.connector_id == PLAIN_AGAIN else run.connector_id].decision != "include":
            return Turns({}, run.connector_id)
    with measuring_alone(first.folder.root, first.config.campaign, first.cards, first.slot.engine.port):
        end_all_leftovers(first.folder.root, grace_s=first.config.engine.stop_grace_s)
        guests = {r.connector_id: _guest(r, then[r.connector_id]) for r in runs if r.connector_id in then}
        say("launching " + ", ".join(names.values()))
        try:
            with _all_ready(runs, guests) as members:
                for k, load in enumerate(zip(*(m.cells for m in members), strict=True)):
                    say(f"{load[0].rate_per_s:g} req/s")
                    for member, cell in list(zip(members, load, strict=True))[:: 1 if k % 2 == 0 else -1]:
                        if _stands_by(member, cell.cell_id) and not is_there(member.run, cell):
                            _serve(member, cell)
                for member in members:
                    guest = guests.get(member.run.connector_id)
                    if _stands_by(member, "") and guest is not None:
                        say(f"{names[member.run.connector_id]} alone: how hooks grow")
                        _serve_guest(member, guest)
        except _NotReady as error:
            error.run.progress.say(f"launch failed, each is launched by itself: {error}")
            return Turns({}, error.run.connector_id)
        except LaunchError as error:
            first.progress.say(f"cut short, what is missing is launched by itself: {error}")
    return Turns({r.connector_id: tuple(r.deaths) for r in runs})


class _NotReady(Exception):
    """The engine of ``run`` did not get ready; says why."""

    def __init__(self, run: Run, reason: LaunchError) -> None:
        super().__init__(str(reason))
        self.run = run


@contextmanager
def _all_ready(runs: Sequence[Run], guests: Mapping[str, Guest]) -> Iterator[list[_Member]]:
    """Every engine ready, warm and stopped.

    Raises:
        _NotReady: one is not.
    """
    with ExitStack() as stack:
        started = []
        for run in runs:
            cells = cells_of(run.config, run.connector_id, run.run.phase, _rates(run))
            guest = guests.get(run.connector_id)
            pending = [*pending_cells(run, cells), *(guest.cells if guest is not None else ())]
            launch = stack.enter_context(starting(run, pending))
            started.append((launch, cells))
        ready = []
        for launch, cells in started:
            try:
                ready.append((launch.get_ready(), cells))
            except LaunchError as reason:
                raise _NotReady(launch.run, reason) from reason
            put_to_sleep(launch.engine)
            stack.callback(wake, launch.engine)  # or it would not hear that it is to end
        members = []
        for launch, cells in ready:
            with awake(launch.engine), sampled(launch.run, launch.engine) as idle:
                members.append(_Member(launch.run, cells, launch, idle))
        yield members


def _stands_by(member: _Member, cell_id: str) -> bool:
    """Whether it lives. Who died by itself while nobody asked it has died; whom the host killed is launched by itself."""
    cause = member.launch.engine.death()
    if cause is None or not member.lives:
        return member.lives
    if not cause.startswith(HOSTS_KILL):
        member.run.deaths.append(Death(member.run.run.phase, cell_id, cause))
    member.run.progress.say(f"its engine died while it was stopped: {cause}")
    return False


def _serve(member: _Member, cell: CellSpec) -> None:
    run, launch = member.run, member.launch
    with awake(launch.engine), sampler(run, launch.engine):
        measure_pending(
            run, launch.engine, launch.pool, member.cells, [cell], launch.about, member.idle, log=run.run
        )


def _serve_guest(member: _Member, guest: Guest) -> None:
    run, launch = member.run, member.launch
    with awake(launch.engine), sampler(run, launch.engine):
        pending = pending_cells(guest.run, guest.cells)
        measure_guest(run, guest, pending, launch.engine, launch.pool, launch.about, member.idle)


def _guest(run: Run, phase: Phase) -> Guest:
    date = read_campaign_file(run.folder.campaign_file).date
    folder = run.folder.run(date, run.connector_id, phase)
    return Guest(replace(run, run=folder), cells_of(run.config, run.connector_id, phase, _rates(run)))


def _rates(run: Run) -> ReferenceRates:
    return read_document(run.folder.reference_rates, ReferenceRatesFile).rates
