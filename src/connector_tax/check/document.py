"""``connector-tax check --json``: what a check found and what it says of it."""

from typing import Any, ClassVar, Literal

import msgspec

from connector_tax.base.documents.aggregate import TaxRow
from connector_tax.base.documents.cell import Spinning
from connector_tax.base.documents.identity import Versions
from connector_tax.base.records.bounds import Foreign
from connector_tax.virtual_time import Interval, VirtualTime

Seen = Literal["grew", "shrank", "no_change", "not_known"]
Code = Literal["not_loaded", "not_served", "above", "not_above", "measured", "not_judged"]
EXIT_CODES: dict[Code, int] = {
    "not_loaded": 2,
    "not_served": 2,
    "above": 1,
    "not_above": 0,
    "measured": 0,
    "not_judged": 2,
}


class Connector(msgspec.Struct, frozen=True):
    """What was checked; ``notes`` are what was changed of it for a host without a GPU."""

    id: str
    label: str
    kv_transfer_config: Foreign
    notes: tuple[str, ...]


class Host(msgspec.Struct, frozen=True):
    """The host when the check began.

    Attributes:
        load: processes that ran or waited over the last minute.
        waited: share of the last ten seconds in which some process waited for a core; None where the kernel
            does not tell.
    """

    cores: int
    load: float
    waited: float | None

    @property
    def busy(self) -> bool:
        return self.load > self.cores if self.waited is None else self.waited > 0.2


class Fault(msgspec.Struct, frozen=True):
    """Why vLLM cannot load the connector.

    Attributes:
        code: as ``launch/plugins/connector_loads.py`` has it.
        subject: the package, module or class.
        connector: the class whose it is, of a stack a child.
        said: further words: an error, or what there is instead.
        install: what brings a package.
    """

    code: str
    subject: str
    connector: str = ""
    said: str = ""
    install: str = ""


class Switched(msgspec.Struct, frozen=True):
    """One engine setting that is not plain's.

    Attributes:
        plain, own: its values, which are vLLM's.
        said: lines of the connector's log about it.
    """

    setting: str
    plain: Any
    own: Any
    said: tuple[str, ...]


class Launched(msgspec.Struct, frozen=True):
    """One real launch of the connector.

    Attributes:
        failure: why it does not serve; None where it does.
        created: connectors that vLLM's log says it made.
        off: the log's line that says that a connector is off or on a fallback.
        spinning: threads that do not sleep while nobody asks.
        stand_ins: what takes the place of parts of the device that the connector asks for.
        settings: what the engine resolved.
    """

    failure: str | None
    answered: int = 0
    sent: int = 0
    created: tuple[str, ...] = ()
    off: str | None = None
    spinning: tuple[Spinning, ...] = ()
    stand_ins: tuple[str, ...] = ()
    settings: Foreign = {}
    versions: Versions = {}


class RealTime(msgspec.Struct, frozen=True):
    """A campaign in real time.

    Attributes:
        taxes: of the connector, and of ``again``: what plain differs from itself by.
        lost: cells that do not count, with the reasons.
        failure: why the connector was not measured; None where it was.
    """

    taxes: tuple[TaxRow, ...]
    lost: tuple[str, ...]
    failure: str | None


class Growth(msgspec.Struct, frozen=True):
    """A tax of the engine's thread less what it was in the baseline.

    Attributes:
        metric: a latency, or ``step`` for CPU time of a step.
        seen: ``no_change`` where the interval holds zero, ``not_known`` where there is none.
        ratio: of the taxes as shares of plain's latency; of ``step`` as a share of the CPU time of plain's.
        host_speed: CPU time of plain's step then over today's; the intervals hold with this and without.
        could_see_us: a growth of this size is seen four times in five.
    """

    scheduling: str
    metric: str
    seen: Seen
    us: Interval
    ratio: Interval | None
    host_speed: float
    could_see_us: float | None


class Decided(msgspec.Struct, frozen=True):
    """One tax, or growth of one, that decides; ``where`` is a way of scheduling, or ``real_time``. Of virtual
    time the lower bound."""

    where: str
    metric: str
    point: float
    low: float | None
    high: float | None


class Verdict(msgspec.Struct, frozen=True):
    """
    Attributes:
        limit: as a ratio; None: no tax is too large.
        of: what is judged: taxes, or with a baseline their growth.
        worst: the largest that decides.
        why: of what is not judged: ``ended``, ``out_of_time``, ``problem``, ``not_measured``, ``off`` (the
            connector is, or on a fallback), ``wide`` (an interval is wider than the limit) or
            ``not_in_virtual_time``.
        subject: the metric or the hook that is meant, or what an engine said.
    """

    code: Code
    exit_code: int
    limit: float | None
    worst: Decided | None = None
    why: str | None = None
    subject: str = ""
    of: Literal["tax", "growth"] = "tax"


class Found(msgspec.Struct):
    """What is known so far; a part that was not reached is null, or empty.

    Attributes:
        problem: why the check did not come to its end: the host failed, plain, or an engine in virtual time.
    """

    fault: Fault | None = None
    launched: Launched | None = None
    switched: tuple[Switched, ...] = ()
    virtual_time: tuple[VirtualTime, ...] = ()
    real_time: RealTime | None = None
    growth: tuple[Growth, ...] = ()
    problem: str | None = None


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """The whole; ``python`` is the engine's interpreter."""

    REMEDY: ClassVar[str] = "Give what connector-tax check --json printed."

    schema: Literal[2] = 2
    verdict: Verdict
    connector: Connector
    python: str
    model: str
    gpu: str
    engine_args: Foreign = {}
    host: Host
    found: Found
    elapsed_s: float
