"""A cell: one rate and one shape, measured once against one launch.

``CellSpec`` holds every parameter of the load. It is hashed with the launch, and a cell on disk is reused
only if the hash is the same.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from connector_tax.base.records.bounds import LengthOr0, RateOr0, TimeNs
from connector_tax.base.records.target import RequestForm
from connector_tax.base.seeds import derive_seed

DEFAULT_FORM = RequestForm()
# Characters that file names must not contain.
_FILE_NAME = re.compile(r"[^A-Za-z0-9._-]+")

# One of ``PHASES``, or ``r1``, ``r2``, ...: a block of repeats, which launches every configuration once more.
Phase = str
PHASES: tuple[Phase, ...] = ("a", "b", "b_prime", "c", "d")
_LABELS = {"a": "A", "b": "B", "b_prime": "Bp", "c": "C", "d": "D"}


def is_repeat(phase: Phase) -> bool:
    return re.fullmatch(r"r[1-9][0-9]*", phase) is not None


def is_phase(name: str) -> bool:
    return name in _LABELS or is_repeat(name)


def phase_label(phase: Phase) -> str:
    """Return a phase as in figures and file names: ``A``, ``Bp``, ``R3``."""
    return _LABELS.get(phase, phase.upper())


def phase_word(phase: Phase) -> str:
    """Return a phase as in sentences: ``A``, ``B'``, ``R3``."""
    return "B'" if phase == "b_prime" else phase_label(phase)


def phase_place(phase: Phase) -> tuple[int, int]:
    """Return a key that sorts phases in the order of their measurement."""
    return (len(PHASES), int(phase[1:])) if is_repeat(phase) else (PHASES.index(phase), 0)


@dataclass(frozen=True, slots=True)
class Shape:
    """Prompt and output length of every request of a cell, in tokens."""

    input_tokens: int
    output_tokens: int

    def __str__(self) -> str:
        return f"{self.input_tokens}x{self.output_tokens}"

    @classmethod
    def parse(cls, text: str) -> "Shape":
        """Parse ``4096x256``."""
        first, _, second = text.partition("x")
        return cls(int(first), int(second))


@dataclass(frozen=True, slots=True)
class CellSpec:
    """Everything that shapes the load of one cell.

    Attributes:
        seed: of the schedule, and of the prompts if there is no nonce.
        nonce: makes prompts that no cell of the same seed has sent; for the load generator alone. None in a
            campaign, whose launches start with empty caches.
        rate_per_s: requests per second; 0 for closed loops and traces, which have none.
        arrival: ``fixed``, ``poisson``, ``gamma`` (open loop), ``concurrency``, ``max_throughput`` (closed
            loop), ``offline`` (all ``num_requests`` due at T0).
        workers: load-generator processes that share the cell; None is one.
        gamma_shape: shape of the gaps, for ``gamma``; 1 is Poisson, above 1 more regular.
        concurrency: requests in flight, for ``concurrency``.
        ramp_up_s: time in which a closed loop reaches its concurrency, or an open loop rises linearly from
            ``ramp_from_per_s`` to its rate.
        ramp_from_per_s: the initial rate of an open loop.
        sessions: a session file; rate and concurrency then count sessions, and lengths are the file's.
        sessions_sha256: checksum of its content, if the cell belongs to a campaign.
        prompts: a file of prompts, used one after the other; lengths are the file's.
        recorded: False if the engine's step recorder is off for this cell; None leaves it on.
        stop_half_width: the cell may end once the interval of p90 of TTFT and of TPOT has at most this
            half-width, as a share. None: its length is fixed beforehand.
        max_completed: with ``stop_half_width``, the last interim analysis; the first is ``min_completed``.
        cached_tokens: fill the prefix cache to this many before T0, if it holds fewer; None leaves it as it
            is.
        keep_failed_sessions: continue a session after a failed turn; None cancels the rest.
        num_requests: the cell ends when this many requests (or sessions) were sent, and its window begins
            after ``warmup_s``; None for a cell that ends by time and by completed requests.
        input_lengths, output_lengths: distributions of lengths, as in ``run.workload.lengths``; None: all
            have ``input_tokens`` and ``output_tokens``.
        form: the form of requests; None is a campaign's own form.
    """

    phase: Phase
    rate_per_s: RateOr0
    input_tokens: LengthOr0
    output_tokens: LengthOr0
    arrival: str
    warmup_s: float
    duration_s: float
    min_completed: int
    max_cell_s: float
    drain_timeout_s: float
    inflight_cap: int
    seed: int
    token_id_low: int
    token_id_high: int
    workers: int | None = None
    gamma_shape: float | int | None = None
    concurrency: int | None = None
    ramp_up_s: float | None = None
    sessions: str | None = None
    keep_failed_sessions: bool | None = None
    sessions_sha256: str | None = None
    prompts: str | None = None
    recorded: bool | None = None
    stop_half_width: float | int | None = None
    max_completed: int | None = None
    cached_tokens: int | None = None
    nonce: int | None = None
    num_requests: int | None = None
    ramp_from_per_s: float | None = None
    input_lengths: str | None = None
    output_lengths: str | None = None
    form: RequestForm | None = None

    @property
    def asked(self) -> RequestForm:
        """The form of requests, by default the campaign's."""
        return self.form if self.form is not None else DEFAULT_FORM

    @property
    def prompt_seed(self) -> int:
        return self.seed if self.nonce is None else derive_seed(self.seed, "prompts", self.nonce)

    @property
    def cell_id(self) -> str:
        """Unique in its phase and valid as a file name: ``r0.5_4096x256``, ``r2_4096x256_unrecorded``."""
        if self.arrival == "max_throughput":
            load = "max"
        elif self.arrival == "offline":
            load = f"offline{self.num_requests}"
        elif self.arrival == "concurrency":
            load = f"c{self.concurrency}"
        elif not self.rate_per_s:
            load = "trace"
        elif self.ramp_from_per_s is not None:
            load = f"r{self.ramp_from_per_s:g}-{self.rate_per_s:g}"
        else:
            load = f"r{self.rate_per_s:g}"
        file = self.sessions or self.prompts
        lengths = "x".join(
            text if drawn is None else _FILE_NAME.sub("-", drawn)
            for drawn, text in (
                (self.input_lengths, str(self.input_tokens)),
                (self.output_lengths, str(self.output_tokens)),
            )
        )
        what = lengths if file is None else _FILE_NAME.sub("-", Path(file).stem)
        cached = "" if self.cached_tokens is None else f"_k{self.cached_tokens}"
        return f"{load}_{what}{cached}" + ("_unrecorded" if self.recorded is False else "")

    @property
    def shape(self) -> Shape:
        return Shape(self.input_tokens, self.output_tokens)

    def to_json(self) -> Any:
        """Omit the parameters that this load pattern lacks, so that new ones leave old hashes alone."""
        return {name: value for name, value in msgspec.to_builtins(self).items() if value is not None}

    @classmethod
    def from_json(cls, value: Any) -> "CellSpec":
        return msgspec.convert(value, cls)


@dataclass(frozen=True, slots=True)
class Look:
    """The state of a cell with a stopping rule at an interim analysis.

    Attributes:
        n_planned: completed requests at which it was due.
        n: requests seen.
        half_widths: metric -> half-width of the interval of p90, as a share; None if unbounded.
        tight: whether that was enough.
    """

    n_planned: int
    n: int
    half_widths: dict[str, float | None]
    tight: bool


@dataclass(frozen=True, slots=True)
class CellWindow:
    """The times that divide a cell; CLOCK_MONOTONIC nanoseconds.

    Warm-up is ``[t0_ns, window_start_ns)``, the window ``[window_start_ns, t_stop_ns)``. Nothing is sent from
    ``t_stop_ns`` on; at ``drained_ns`` the last request ended or was given up. ``looks`` is None if the
    cell's length was fixed beforehand. ``overloaded``: the cell ended early with a growing queue and gave up
    the requests in flight. ``overload_unjudged``: it fell behind and requests waited, but it was too short to
    tell whether the queue grew.
    """

    t0_ns: TimeNs
    window_start_ns: TimeNs
    t_stop_ns: TimeNs
    drained_ns: TimeNs
    min_completed_reached: bool
    looks: tuple[Look, ...] | None = None
    overloaded: bool = False
    overload_unjudged: bool = False

    @property
    def half_width_reached(self) -> bool | None:
        return None if self.looks is None else any(look.tight for look in self.looks)

    @property
    def flags(self) -> tuple[str, ...]:
        """Flags of a cell that ended by its time limit, at its last interim analysis, or by overload."""
        if self.overloaded:
            return ("overloaded",)
        short = () if self.min_completed_reached else ("min_completed_not_reached",)
        short = (*short, *(("overload_unjudged",) if self.overload_unjudged else ()))
        return (*short, *(("half_width_not_reached",) if self.half_width_reached is False else ()))

    def phase_of(self, t_sched_ns: int) -> str:
        return "warmup" if t_sched_ns < self.window_start_ns else "window"

    @property
    def window_s(self) -> float:
        return (self.t_stop_ns - self.window_start_ns) / 1e9

    def to_json(self) -> Any:
        return {name: value for name, value in msgspec.to_builtins(self).items() if value is not None}

    @classmethod
    def from_json(cls, value: Any) -> "CellWindow":
        return msgspec.convert(value, cls)
