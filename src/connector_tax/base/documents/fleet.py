"""``fleet.json``: a study of modelled fleets, and what was found; ``docs/formats.md`` says what each key
means.

What is asked (``Study`` and its parts) is what a person writes in YAML.
"""

from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from connector_tax.base.records.bounds import Strict, Text

_Positive = Annotated[float, Meta(gt=0)]


class Policy(Strict, frozen=True):
    """A router and the queue it is used with: at the gateway if the router pulls, else at each instance."""

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
        """Of one request: 1 is a full instance."""
        return 1 / self.capacity


class Wanted(Strict, frozen=True):
    """A pattern as it was asked for.

    Attributes:
        weight: arrivals relative to those of the other patterns.
        slo_s: E2E latency that must not be exceeded; with a campaign it may be left out, see slo_factor.
        profile: what one instance does within the SLO; with a campaign it is found from what was measured,
            and left out here.
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
    """Many instances behind a gateway; what is sent to them, and which policies are tried. Choosing values:
    docs/fleet.md.

    Attributes:
        seed: root of every random stream.
        instances: sizes of the fleets that are simulated.
        slo_factor: an SLO that is not given is so many times plain's E2E latency on an idle instance.
        violations_allowed: share of requests that may miss their SLO at the rate that a profile, or a fleet's
            capacity, names.
        loads: offered load; 1 is what all instances of plain can take by their profiles.
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
    """Over independent days, with Student's t.

    Attributes:
        low, high: None with fewer than two days.
        days: on which there was something to take a mean of.
    """

    point: float
    low: float | None
    high: float | None
    days: int


class PatternRow(msgspec.Struct, frozen=True):
    """A pattern that was simulated, with the SLO that was found where none was given."""

    name: str
    input_tokens: int
    output_tokens: int
    slo_s: float
    weight: float


class Check(msgspec.Struct, frozen=True):
    """One latency of one cell, in milliseconds: as measured, and as the model has it."""

    phase: str
    cell_id: str
    metric: str
    measured_ms: float
    modelled_ms: float

    @property
    def error(self) -> float:
        """modelled / measured - 1"""
        return self.modelled_ms / self.measured_ms - 1


class EngineRow(msgspec.Struct, frozen=True):
    """The model of one configuration's engine.

    Attributes:
        steps, input_lengths, most_together: behind the fit; sequences that decoded in one step are
            ``most_together``.
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
    """What one instance of a configuration can take of one pattern, over days; None where the SLO cannot be
    kept at any rate.

    Attributes:
        capacity: requests in flight.
        rate_tax: of ``rate_per_s`` against plain's, as a ratio less one.
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
        """Its size, router and queue."""
        return self.instances, self.router, self.queue

    @property
    def policy(self) -> str:
        """As pictures name it."""
        return f"{self.router} / {self.queue}"


class FleetRow(InSetting, frozen=True):
    """
    Attributes:
        metrics: by name; None where no request came.
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
    """What a configuration adds to plain's figure in one setting: a ratio less one, of violations a
    difference."""

    metric: str
    point: float
    low: float | None
    high: float | None
    days: int

    @property
    def mean(self) -> Mean:
        return Mean(self.point, self.low, self.high, self.days)


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """``fleet.json``.

    Attributes:
        campaign: None where profiles were given.
        left_out: configuration -> why it is in no fleet.
        notes: what a reader must know beside the numbers.
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
