"""The document of ``connector-tax check --json``: what a check found, and its verdict."""

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
    """The connector that was checked; ``notes`` are changes to it for a host without a GPU."""

    id: str
    label: str
    kv_transfer_config: Foreign
    notes: tuple[str, ...]


class Host(msgspec.Struct, frozen=True):
    """The host when the check began.

    Attributes:
        load: processes that ran or waited over the last minute.
        waited: share of the last ten seconds in which some process waited for a core; None if the kernel does
            not report it.
    """

    cores: int
    load: float
    waited: float | None

    @property
    def busy(self) -> bool:
        return self.load > self.cores if self.waited is None else self.waited > 0.2


class Fault(msgspec.Struct, frozen=True):
    """A reason why vLLM cannot load the connector.

    Attributes:
        code: one of ``launch/plugins/connector_loads.py``.
        subject: the package, module or class.
        connector: the class concerned, in a stack a child.
        said: an error, or what exists instead.
        install: installs a missing package.
    """

    code: str
    subject: str
    connector: str = ""
    said: str = ""
    install: str = ""


class Switched(msgspec.Struct, frozen=True):
    """An engine setting that differs from plain's.

    Attributes:
        plain, own: vLLM's values.
        said: lines of the connector's log about it.
    """

    setting: str
    plain: Any
    own: Any
    said: tuple[str, ...]


class Launched(msgspec.Struct, frozen=True):
    """A real launch of the connector.

    Attributes:
        failure: why it does not serve; None if it does.
        created: connectors that vLLM created, by its log.
        off: the log line that says that a connector is off or on a fallback.
        spinning: threads that do not sleep while the engine is idle.
        stand_ins: replacements for parts of the device that the connector needs.
        settings: as the engine resolved them.
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
        taxes: of the connector, and of ``again``, the difference between two launches of plain.
        lost: cells that do not count, with the reasons.
        failure: why the connector was not measured; None if it was.
    """

    taxes: tuple[TaxRow, ...]
    lost: tuple[str, ...]
    failure: str | None


class Growth(msgspec.Struct, frozen=True):
    """A tax of the engine's thread minus that of the baseline.

    Attributes:
        metric: a latency, or ``step`` for CPU time of a step.
        seen: ``no_change`` if the interval contains zero, ``not_known`` if there is none.
        ratio: of taxes relative to plain's latency; of ``step`` relative to plain's CPU time.
        host_speed: CPU time of plain's step in the baseline over today's; the intervals hold with and without
            this correction.
        could_see_us: a growth of this size is detected four times in five.
    """

    scheduling: str
    metric: str
    seen: Seen
    us: Interval
    ratio: Interval | None
    host_speed: float
    could_see_us: float | None


class Decided(msgspec.Struct, frozen=True):
    """A tax, or its growth, that decides.

    ``where`` is the scheduling, or ``real_time``. In virtual time the values belong to the lower bound.
    """

    where: str
    metric: str
    point: float
    low: float | None
    high: float | None


class Verdict(msgspec.Struct, frozen=True):
    """The verdict of a check.

    Attributes:
        limit: as a ratio; None: no tax is too large.
        of: what is judged: taxes, or with a baseline their growth.
        worst: the largest that decides.
        why: for ``not_judged``: ``ended``, ``out_of_time``, ``problem``, ``not_measured``, ``off`` (the
            connector is off or on a fallback), ``wide`` (an interval is wider than the limit) or
            ``not_in_virtual_time``.
        subject: the metric or hook concerned, or an engine's message.
    """

    code: Code
    exit_code: int
    limit: float | None
    worst: Decided | None = None
    why: str | None = None
    subject: str = ""
    of: Literal["tax", "growth"] = "tax"


class Found(msgspec.Struct):
    """The results so far; a part that was not reached is null or empty.

    Attributes:
        problem: why the check did not finish: a failure of the host, plain, or an engine in virtual time.
    """

    fault: Fault | None = None
    launched: Launched | None = None
    switched: tuple[Switched, ...] = ()
    virtual_time: tuple[VirtualTime, ...] = ()
    real_time: RealTime | None = None
    growth: tuple[Growth, ...] = ()
    problem: str | None = None


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """The whole document; ``python`` is the engine's interpreter."""

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
