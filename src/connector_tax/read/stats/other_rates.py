"""Phases that were measured at other rates than today's reference rates."""

import math
from collections.abc import Iterable

from connector_tax.base.documents.rates import ReferenceRatesFile
from connector_tax.base.records.cell import CellSpec, Shape
from connector_tax.read.ingest import CampaignData, Problem


def other_rates(data: CampaignData, rates: ReferenceRatesFile | None, shape: Shape) -> list[Problem]:
    """Phases B, B' and C ran at the rates of their day. Where those were worked out anew since, their taxes are of other rates."""
    if rates is None:
        return []
    cells = [c for c in data.cells() if c.usable]
    by_phase = {p: [c.spec for c in cells if c.phase == p] for p in ("b", "b_prime", "c")}
    own = {s.rate_per_s for s in by_phase["b"] if s.shape == shape}
    # Other shapes may have a lower rate, and none has a higher one.
    of_b = own - {rates.ref_safe_per_s} if own else _above(by_phase["b"], rates.ref_safe_per_s)
    where = " at phase A's shape" if own else ""
    of_c = {
        requests
        for spec in by_phase["c"]
        if (requests := _requests_per_s(spec, data)) is not None
        and not math.isclose(requests, rates.ref_safe_per_s, rel_tol=1e-4)
    }
    safe, load = f"ref_safe is {rates.ref_safe_per_s:g}", f"ref_load is {rates.ref_load_per_s:g}"
    return [
        *(
            Problem(
                "phase B",
                f"was measured at {r:g} req/s{where}, and {safe}: the taxes at its shapes, H5 and H6 are of that rate",
            )
            for r in sorted(of_b)
        ),
        *(
            Problem(
                "phase B'",
                f"was measured at {r:g} req/s, and {load}: the taxes at its shapes are of that rate",
            )
            for r in sorted(_above(by_phase["b_prime"], rates.ref_load_per_s))
        ),
        *(
            Problem(
                "phase C",
                f"its turns came at {r:.4g} req/s, and {safe}: the taxes of conversations are of that rate",
            )
            for r in sorted(of_c)
        ),
    ]


def _above(specs: Iterable[CellSpec], rate_per_s: float) -> set[float]:
    return {s.rate_per_s for s in specs if s.rate_per_s > rate_per_s}


def _requests_per_s(spec: CellSpec, data: CampaignData) -> float | None:
    """Of sessions, at what rate their turns come; None where the configuration does not say how many turns they have."""
    files = data.config.phase_c.sessions
    turns = next((f.turns_per_session for f in files if f.path == spec.sessions), None)
    return None if turns is None else spec.rate_per_s * turns
