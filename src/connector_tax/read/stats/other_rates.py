"""Phases that were measured at other rates than today's reference rates."""

import math
from collections.abc import Iterable

from connector_tax.base.documents.aggregate import Problem, ProblemCode
from connector_tax.base.documents.rates import ReferenceRatesFile
from connector_tax.base.records.cell import CellSpec, Shape
from connector_tax.read.ingest import CampaignData


def other_rates(data: CampaignData, rates: ReferenceRatesFile | None, shape: Shape) -> list[Problem]:
    """Phases B, B' and C ran at the rates of their day. Where those were worked out anew since, their taxes are of other rates."""
    if rates is None:
        return []
    cells = [c for c in data.cells() if c.usable]
    by_phase = {p: [c.spec for c in cells if c.phase == p] for p in ("b", "b_prime", "c")}
    own = {s.rate_per_s for s in by_phase["b"] if s.shape == shape}
    # Other shapes may have a lower rate, and none has a higher one.
    of_b = own - {rates.ref_safe_per_s} if own else _above(by_phase["b"], rates.ref_safe_per_s)
    of_c = {
        float(f"{requests:.4g}")
        for spec in by_phase["c"]
        if (requests := _requests_per_s(spec, data)) is not None
        and not math.isclose(requests, rates.ref_safe_per_s, rel_tol=1e-4)
    }
    found: dict[ProblemCode, set[float]] = {
        "rate_of_b": of_b,
        "rate_of_b_prime": _above(by_phase["b_prime"], rates.ref_load_per_s),
        "rate_of_c": of_c,
    }
    now = {"ref_safe": rates.ref_safe_per_s, "ref_load": rates.ref_load_per_s}
    return [
        Problem(code, code.replace("rate_of", "phase"), numbers={"rate": rate, **now})
        for code, measured in found.items()
        for rate in sorted(measured)
    ]


def _above(specs: Iterable[CellSpec], rate_per_s: float) -> set[float]:
    return {s.rate_per_s for s in specs if s.rate_per_s > rate_per_s}


def _requests_per_s(spec: CellSpec, data: CampaignData) -> float | None:
    """Of sessions, at what rate their turns come; None where the configuration does not say how many turns they have."""
    files = data.config.phase_c.sessions
    turns = next((f.turns_per_session for f in files if f.path == spec.sessions), None)
    return None if turns is None else spec.rate_per_s * turns
