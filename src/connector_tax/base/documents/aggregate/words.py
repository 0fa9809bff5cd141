"""The words of ``aggregate.json``: each enumeration once, for types, schema and readers."""

from typing import Annotated, Literal

import msgspec

Reference = Literal["ref_safe", "ref_load"]
AnyReference = Literal["ref_safe", "ref_load", "neither"]
LatencyMetric = Literal["ttft_p90", "tpot_p90"]
Metric = Literal["ttft_p90", "tpot_p90", "step_p50_us", "callback_p50_us", "unexplained_us"]
Unit = Literal["ratio", "us"]
Verdict = Literal["valid", "invalid"]
TaxVerdict = Literal["tax", "gain", "no_tax_found", "undetermined", "unavailable"]
BlockVerdict = Literal["tax", "gain", "no_tax_found"]
Criterion = Literal["throughput", "waiting", "ttft_growth"]
ConfigStatus = Literal["measured", "partial", "skipped", "failed", "missing"]
Outcome = Literal["supported", "refuted", "undetermined", "not testable"]
HypothesisId = Literal["H1", "H2", "H3", "H4", "H5", "H6"]

Count = Annotated[int, msgspec.Meta(ge=0)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
# Above zero.
Rate = Annotated[float, msgspec.Meta(gt=0)]
# Of a cell: zero in a closed loop.
CellRate = Annotated[float, msgspec.Meta(ge=0)]
# r1, r2, ... are blocks of repeats.
Phase = Annotated[str, msgspec.Meta(pattern=r"^(a|b|b_prime|c|d|r[1-9][0-9]*)$")]
Block = Annotated[str, msgspec.Meta(pattern=r"^(a|b|r[1-9][0-9]*)$")]
# What JSON holds beside lists and objects.
Scalar = str | int | float | bool | None
