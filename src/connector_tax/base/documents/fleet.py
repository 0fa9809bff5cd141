"""``fleet.json``: a study of modelled fleets and its results; ``docs/formats.md`` defines the keys.

A person writes the question (``Study`` and its parts) in YAML.
"""

from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from connector_tax.base.records.bounds import Strict, Text

_Positive = Annotated[float, Meta(gt=0)]


class Policy(Strict, frozen=True):
    """A router and its queue: at the gateway if the router pulls, else at each instance."""

    router: Literal["random_push", "least_load_push", "least_load_pull", "binpack_pull"]
    queue: Literal["fifo", "by_pattern"]


class Profile(Strict, frozen=True):
    """One instance and one pattern.

    Attributes:
        rate_per_s: highest arrival rate at which the SLO holds.
        e2e_s: mean E2E latency at that rate.
    """

    rate_per_s: _Positive
    e2e_s: _Positive

    @property
    def capacity(self) -> float:
        """Requests in flight at the highest rate (Little's law)."""
        return self.rate_per_s * self.e2e_s

    @property
    def load(self) -> float:
        """Load of one request: 1 is a full instance."""
        return 1 / self.capacity


class Wanted(Strict, frozen=True):
    """A pattern in the study.

    Attributes:
        weight: arrivals relative to those of the other patterns.
        slo_s: highest allowed E2E latency; with a campaign it may be omitted, see slo_factor.
        profile: the capacity of one instance within the SLO; with a campaign it comes from measurements and
            is omitted here.
    """

    name: Text
    input_tokens: Annotated[int, Meta(ge=1)]
    output_tokens: Annotated[int, Meta(ge=2)]
    weight: _Positive = 1.0
    slo_s: _Positive | None = None
    profile: Profile | None = None


_POLICIES = (
    Policy("random_push", "fifo"),
    Policy("least_load_push", "fifo"),
    Policy("least_load_pull", "fifo"),
    Policy("least_load_pull", "by_pattern"),
    Policy("binpack_pull", "by_pattern"),
)


class Study(Strict, frozen=True, kw_only=True):
    """A load for many instances behind a gateway, and the policies to try. Choosing values: docs/fleet.md.

    Attributes:
        seed: root of every random stream.
        instances: sizes of the simulated fleets.
        slo_factor: the default SLO, as a multiple of plain's E2E latency on an idle instance.
        violations_allowed: share of requests that may miss their SLO at the rate that a profile, or a fleet's
            capacity, names.
        loads: offered load; 1 is the capacity of all instances of plain by their profiles.
        policies: router and queue; pulling routers keep the queue at the gateway, pushing ones at each
            instance.
        duration_s: window of one simulated day, in virtual seconds.
        days: independent draws of the arrivals; every configuration and policy has the same ones.
    """

    seed: Annotated[int, Meta(ge=0)] = 20260526
    instances: Annotated[tuple[Annotated[int, Meta(ge=1, le=64)], ...], Meta(min_length=1)]
    patterns: Annotated[tuple[Wanted, ...], Meta(min_length=1)]
    slo_factor: Annotated[float, Meta(gt=1)] = 2.0
    violations_allowed: Annotated[float, Meta(ge=0, lt=1)] = 0.05
    loads: Annotated[tuple[Annotated[float, Meta(gt=0, le=2)], ...], Meta(min_length=1)] = (0.5, 0.7, 0.9)
    policies: Annotated[tuple[Policy, ...], Meta(min_length=1)] = _POLICIES
    warmup_s: Annotated[float, Meta(ge=0)] = 30.0
    duration_s: _Positive = 120.0
    days: Annotated[int, Meta(ge=2)] = 5
    confidence: Annotated[float, Meta(gt=0.5, lt=1)] = 0.95


class Mean(msgspec.Struct, frozen=True):
    """A mean over independent days, with Student's t.

    Attributes:
        low, high: None with fewer than two days.
        days: days that had a value.
    """

    point: float
    low: float | None
    high: float | None
    days: int


class PatternRow(msgspec.Struct, frozen=True):
    """A simulated pattern, with the SLO that was derived if none was given."""

    name: str
    input_tokens: int
    output_tokens: int
    slo_s: float
    weight: float


class Check(msgspec.Struct, frozen=True):
    """One latency of one cell, in milliseconds: measured and modelled."""

    phase: str
    cell_id: str
    metric: str
    measured_ms: float
    modelled_ms: float

    @property
    def error(self) -> float:
        return self.modelled_ms / self.measured_ms - 1


class EngineRow(msgspec.Struct, frozen=True):
    """The model of one configuration's engine.

    Attributes:
        steps, input_lengths, most_together: behind the fit; ``most_together`` counts sequences that decoded
            in one step.
        typical_error: median of the absolute errors of ``checks``.
    """

    config: str
    base_us: float
    per_prefill_token_us: float
    per_decode_seq_us: float
    per_context_token_us: float
    jitter_cv: float
    per_prompt_us: float
    outside_s: float
    steps: int
    input_lengths: tuple[int, ...]
    most_together: int
    typical_error: float
    checks: tuple[Check, ...]


class ProfileRow(msgspec.Struct, frozen=True):
    """One instance's capacity with one configuration and pattern, over days; None if no rate keeps the SLO.

    Attributes:
        capacity: requests in flight.
        rate_tax: ``rate_per_s`` against plain's, as a ratio less one.
    """

    config: str
    pattern: str
    rate_per_s: Mean | None
    e2e_s: Mean | None
    capacity: Mean | None
    rate_tax: Mean | None


class InSetting(msgspec.Struct, frozen=True):
    """One configuration in one fleet, under one policy and load."""

    config: str
    instances: int
    router: str
    queue: str
    load: float

    @property
    def fleet(self) -> tuple[int, str, str]:
        return self.instances, self.router, self.queue

    @property
    def policy(self) -> str:
        return f"{self.router} / {self.queue}"


class FleetRow(InSetting, frozen=True):
    """The metrics of one configuration in one setting.

    Attributes:
        metrics: by name; None without requests.
        violations_by_pattern: share of requests that miss their SLO.
    """

    keeps_up: bool
    metrics: dict[str, Mean | None]
    violations_by_pattern: dict[str, Mean | None]

    @property
    def missed(self) -> Mean | None:
        """Share of requests that miss their SLO."""
        return self.metrics["violations"]


class TaxRow(InSetting, frozen=True):
    """A configuration against plain in one setting: a ratio less one, for violations a difference."""

    metric: str
    point: float
    low: float | None
    high: float | None
    days: int

    @property
    def mean(self) -> Mean:
        return Mean(self.point, self.low, self.high, self.days)


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of ``fleet.json``.

    Attributes:
        campaign: None if profiles were given.
        left_out: configuration -> why it is in no fleet.
        notes: caveats for the reader of the numbers.
    """

    REMEDY: ClassVar[str] = "Simulate the study again."

    schema_version: Literal[1] = 1
    campaign: str | None
    study: Study
    patterns: tuple[PatternRow, ...]
    engines: tuple[EngineRow, ...]
    left_out: dict[str, str]
    notes: tuple[str, ...]
    profiles: tuple[ProfileRow, ...]
    fleets: tuple[FleetRow, ...]
    taxes: tuple[TaxRow, ...]
