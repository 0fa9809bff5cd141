"""A tax in three parts: flags that the connector switches, vLLM's connector framework, the connector's own code.

flags = matched plain against plain; framework = the no-op connector's tax less its own flags; implementation = the rest,
so that the three add up to the tax. A connector that changes no setting has no flags part. Where the flags of either are not
known, the tax has the two parts of the published experiment: the no-op connector's whole tax, and the rest.

Each part has the kind and the n of the taxes that it is made of: one over fewer blocks than the whole says so.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from connector_tax.base.documents.aggregate import Decomposition, LatencyMetric, QuantityOfKind
from connector_tax.base.records.connector import MATCHED
from connector_tax.base.records.settings import CONSEQUENCES
from connector_tax.base.statistics.bootstrap import Estimate, unavailable
from connector_tax.read.stats.main_taxes import MainTax, fewer, kind_of, main_at
from connector_tax.read.stats.taxes import LATENCY_METRICS, difference

NOOP = "noop_connector"
PARTS = ("flags", "framework", "implementation")
Changes = dict[str, list[str] | None]


@dataclass(frozen=True, slots=True)
class Part:
    """One part.

    Attributes:
        blocks: the fewest of the taxes that entered it; None where those are of one launch.
        measured: whether any did: that settings which nobody switches cost nothing is known without.
    """

    estimate: Estimate
    blocks: int | None = None
    measured: bool = True

    def less(self, other: "Part", *, of_other: str) -> "Part":
        """The rest of it; ``of_other`` names what is missing where that is the other."""
        if not other.measured:
            return self
        rest = difference(self.estimate, other.estimate, of_second=of_other)
        return Part(rest, fewer(self.blocks, other.blocks))

    def of_kind(self, confidence: float) -> QuantityOfKind:
        """Of no kind where nothing was measured, and where the part is unavailable."""
        there = self.measured and self.estimate.point is not None
        return self.estimate.of_kind(confidence, kind_of(self.blocks) if there else None)


Taxes = Mapping[str, Part]
NO_FLAGS = Part(Estimate(0.0, np.zeros(1), 0), measured=False)


def decompose(
    chosen: list[MainTax],
    engine_diff: Mapping[str, Collection[str] | None],
    confidence: float,
    no_noop: str | None = None,
) -> list[Decomposition]:
    """Rows of ``decomposition`` in ``aggregate.json``, one per connector and latency.

    Args:
        chosen: the main taxes; those at ref_safe are split.
        engine_diff: configuration -> settings changed against plain; None where they were not seen.
        no_noop: why the no-op connector has no numbers, where it has none.
    """
    changed: Changes = {
        config: None if found is None else sorted(set(found) - CONSEQUENCES)
        for config, found in engine_diff.items()
    }
    by_metric = {metric: main_at(chosen, "ref_safe", metric) for metric in LATENCY_METRICS}
    configs = list(dict.fromkeys(c for taxes in by_metric.values() for c in taxes))
    return [
        _row(config, metric, by_metric[metric], changed, confidence, no_noop)
        for config in configs
        if config != NOOP and not config.startswith(MATCHED)
        for metric in LATENCY_METRICS
        if config in by_metric[metric]
    ]


def _in_both(why: str | None) -> str:
    return f"what the no-op connector's own settings cost is not known ({why}), so what flags cost lies in the other parts"


def _row(
    config: str,
    metric: LatencyMetric,
    found: dict[str, MainTax],
    changed: Changes,
    confidence: float,
    no_noop: str | None,
) -> Decomposition:
    """Parts are made of taxes of one kind alone: blocks of launches, or one launch each."""
    whole = found[config]
    taxes = {c: _named(c, Part(main.like(whole), main.blocks), config) for c, main in found.items()}
    noop = taxes.get(NOOP) or Part(unavailable(_without_noop(no_noop)))
    parts = _in_three(config, taxes, changed, noop)
    split: Literal[0, 2, 3] = 3
    if any(part.estimate.point is None for part in parts.values()):
        two = _in_two(taxes[config], noop)
        if NOOP in found and found[NOOP].estimate.point is not None:
            # A whole tax, which nothing is taken from, is of its own kind.
            two["framework"] = Part(found[NOOP].estimate, found[NOOP].blocks)
        # Why there are no flags stays; the other two are the published experiment's.
        parts, split = {**parts, **two}, 2 if two["implementation"].estimate.point is not None else 0
        own = _flags(NOOP, taxes, changed).estimate
        if split and own.point is None and parts["flags"].estimate.point is not None:
            # Beside the no-op connector's whole tax they would be counted twice. Where that has none, flags are all that is known.
            parts["flags"] = Part(unavailable(_in_both(own.reason)))
    return Decomposition(
        config=config,
        metric=metric,
        kind=whole.kind,
        settings=tuple(changed.get(config) or ()),
        parts=split,
        total=taxes[config].of_kind(confidence),
        **{name: parts[name].of_kind(confidence) for name in PARTS},
    )


def _named(owner: str, part: Part, config: str) -> Part:
    """Why somebody else's tax is unavailable says whose it is; reasons of unlike kinds do."""
    reason = part.estimate.reason
    if owner == config or reason is None or reason.startswith(owner):
        return part
    return replace(part, estimate=unavailable(f"{owner}: {reason}", part.estimate.n))


def _in_three(config: str, taxes: Taxes, changed: Changes, noop: Part) -> dict[str, Part]:
    flags = _flags(config, taxes, changed)
    framework = noop.less(_flags(NOOP, taxes, changed), of_other="its flags")
    rest = taxes[config].less(flags, of_other="flags")
    return {
        "flags": flags,
        "framework": framework,
        "implementation": rest.less(framework, of_other="framework"),
    }


def _in_two(whole: Part, noop: Part) -> dict[str, Part]:
    """Without the flags, which then lie in either."""
    return {"framework": noop, "implementation": whole.less(noop, of_other=NOOP)}


def _without_noop(why: str | None) -> str:
    if why is None:
        return f"{NOOP} has no usable cell here"
    if why == "not part of this campaign":
        return f"{NOOP} is {why}"
    return f"{NOOP} was {why}" if why.startswith("skipped: ") else f"{NOOP} has no tax ({why})"


def _flags(config: str, taxes: Taxes, changed: Changes) -> Part:
    if MATCHED + config in taxes:
        return taxes[MATCHED + config]
    found = changed.get(config)
    if found is None:
        return Part(unavailable(f"the engine settings of {config} are not known"))
    if found:
        return Part(unavailable(f"it changes engine settings, and {MATCHED}{config} was not measured"))
    return NO_FLAGS
