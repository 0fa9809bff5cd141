"""What else differs between two campaigns, and what must be known before their taxes are compared."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from connector_tax.base.documents.identity import kinds_of
from connector_tax.base.documents.rates import REFERENCES
from connector_tax.read.compare.comparison import Comparison, Side, flags_at
from connector_tax.read.figures.words import (
    label,
    on_embedded_engine,
    phase_a_shape,
    reference_flags,
    reference_rate,
    source_note,
    virtual_name,
)

# Of the settings those that change the load or what a launch is like.
_ALIKE = (
    "setting cell.gamma_shape",
    "setting cell.duration_s",
    "setting cell.warmup_s",
    "setting cell.inflight_cap",
    "setting engine.extra_args",
    "setting engine.model_file",
    "setting engine.model_sha256",
    "setting engine.pin_cpus",
    "setting engine.step_timing",
)
_ALIKE_BENEATH = "setting engine.env."
SIDE_BY_SIDE = "engines side by side"
# The same host reports a few MiB more or less after a reboot.
PASSING = {"host memory_mib"}


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not the same; ``-`` where a campaign does not say."""

    what: str
    a: str
    b: str


def differences(comparison: Comparison) -> list[Difference]:
    """Engine, versions, GPU, host, settings, client, reference rates and flags, in that order."""
    sides, changes = (comparison.a, comparison.b), comparison.changes
    configs = {c.config for c in changes}
    first, second = (
        _facts(
            side,
            sorted(
                {
                    flag
                    for c in changes
                    for flag in flags_at(side.aggregate, c.config, c.metric, comparison.rate.per_s)
                }
            ),
        )
        for side in sides
    )
    for facts, side in zip((first, second), sides, strict=True):
        facts |= _named(side.aggregate.provenance.settings, configs)
    names = dict.fromkeys([*first, *second])
    pairs = [Difference(name, first.get(name, "-"), second.get(name, "-")) for name in names]
    return [d for d in pairs if d.a != d.b and d.what not in PASSING]


def has_to_be_alike(side: Side) -> dict[str, str]:
    """What taxes depend on beside connector, versions and rate, in words: campaigns that differ in one of these are different series."""
    provenance = side.aggregate.provenance
    facts = _facts(side, ())
    shape = phase_a_shape(side.aggregate)
    # What is null or empty is as good as not said.
    more = {
        name: text
        for name, text in _named(side.aggregate.provenance.settings, ()).items()
        if (name in _ALIKE or name.startswith(_ALIKE_BENEATH)) and text not in ("-", "none")
    }
    return {
        "engine": facts["engine"],
        "device": _device_of_series(side),
        "model": facts["model"],
        "shape of Phase A": "-" if shape is None else f"{shape[0]} prompt and {shape[1]} output tokens",
        "arrivals": facts["setting cell.arrival"],
        # Neighbours take from a host what its cores, memory and buses are shared of, and cards of one kind differ.
        SIDE_BY_SIDE: facts.get(SIDE_BY_SIDE, "up to 1"),
        "cards, or places without one": str(len(provenance.cards or ()) or 1),
        "comparisons across cards": "some" if provenance.mixed_cards else "none",
        "confidence of the intervals": f"{provenance.confidence:g}",
        "host CPU": facts.get("host cpu", "-"),
        "host cores": facts.get("host cores", "-"),
        **{name: text for name, text in facts.items() if name.startswith("engine argument ") and text != "-"},
        **more,
    }


def _device_of_series(side: Side) -> str:
    """Cards count by their names, since another card of the same kind is no other device."""
    if on_embedded_engine(side.aggregate):
        return "the embedded engine"
    if (clock := side.aggregate.provenance.clock) is not None:
        return f"virtual {virtual_name(clock)}"
    cards = Counter(kinds_of(side.aggregate.provenance.gpu))
    return ", ".join(f"{n} x {card}" for card, n in sorted(cards.items())) or "no GPU"


def _facts(side: Side, flags: Sequence[str]) -> dict[str, str]:
    """
    Args:
        flags: of the cells behind the taxes that are compared.
    """
    provenance = side.aggregate.provenance
    found = {
        "engine": _text(provenance.engine_kind),
        "model": _text(provenance.model),
        "GPU": _text(provenance.gpu or ("none" if provenance.versions else "unknown")),
        "step times": "recorded" if side.aggregate.step_timing_available else "not recorded",
        "setting cell.arrival": _text(provenance.arrival),
        "seed": _text(provenance.seed),
        "resamples": _text(provenance.bootstrap_draws),
    }
    if provenance.cards:
        found[SIDE_BY_SIDE] = f"up to {provenance.engines_at_once}"
        found["phases whose comparisons cross cards"] = _text(provenance.mixed_cards or "none")
    if (gpu := provenance.clock) is not None:
        found["virtual GPU"] = virtual_name(gpu)
    nested: dict[str, Mapping[str, object]] = {
        "engine argument": provenance.engine_args,
        "version of": provenance.versions,
        "container": provenance.container or {},
        "host": provenance.host,
        "code": provenance.code,
    }
    for words, own in nested.items():
        found |= {f"{words} {name}": _text(value) for name, value in own.items()}
    for reference in REFERENCES:
        found[f"{reference}, req/s"] = _text(reference_rate(side.aggregate, reference))
    found["flags of the reference rates"] = _text(reference_flags(side.aggregate))
    found["flags of the cells"] = _text(flags)
    return found


def _named(settings: Mapping[str, object], both: Collection[str]) -> dict[str, str]:
    """``setting cell.min_completed`` and so on; of a connector that both have measured how it was launched.

    Args:
        both: ids of those.
    """
    every = settings.get("connectors")
    connectors = {c: v for c, v in every.items() if c in both} if isinstance(every, Mapping) else {}
    return {f"setting {name}": text for name, text in _flat({**settings, "connectors": connectors}).items()}


def _flat(value: Mapping[str, object], before: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for key, inner in value.items():
        name = f"{before}{key}"
        found |= _flat(inner, f"{name}.") if isinstance(inner, Mapping) else {name: _text(inner)}
    return found


def _text(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, float):
        short = f"{value:g}"
        return short if float(short) == value else repr(value)
    return "-" if value is None else str(value)


def notes(comparison: Comparison) -> list[str]:
    """Return what qualifies every number."""
    a, b = (side.aggregate.provenance for side in comparison.sides)
    found = []
    for side in comparison.sides:
        flags = reference_flags(side.aggregate)
        about = [source_note(side.aggregate), *(f"{flag}: {label('rate_flag', flag)}" for flag in flags)]
        found += [f"{side.name}: {text}" for text in about if text]
    clocks = [None if (clock := p.clock) is None else clock.sha256 for p in (a, b)]
    codes = {
        "same_campaign": identity(comparison.a) == identity(comparison.b),
        "two_engines": a.measured_on.kind != b.measured_on.kind or clocks[0] != clocks[1],
        "one_launch": any(n.value and n.n_blocks == 1 for c in comparison.changes for n in (c.a, c.b)),
    }
    return [*(label("comparison_note", code) for code, holds in codes.items() if holds), *found]


def identity(side: Side) -> tuple[object, ...]:
    """Its launches, and not what was made of them: of one campaign before and after a loss both sides share launches.

    Two hosts may start a campaign of one name in the same second, and not every campaign says when it started.
    """
    aggregate, provenance = side.aggregate, side.aggregate.provenance
    host = {f"host {name}": value for name, value in provenance.host.items()}
    return (
        aggregate.campaign,
        aggregate.date,
        provenance.config_hash,
        provenance.created_utc,
        provenance.seed,
        provenance.engine_kind,
        provenance.gpu,
        *(
            tuple(sorted((n, _text(v)) for n, v in own.items() if n not in PASSING))
            for own in (host, provenance.versions)
        ),
    )
