"""The words of ``aggregate.json``: each enumeration once, for types, schema and readers."""

from typing import Annotated, Literal

import msgspec

AnyReference = Literal["ref_safe", "ref_load", "neither"]
LatencyMetric = Literal["ttft_p90", "tpot_p90"]
# Medians beside the tails that taxes are stated in.
AnyLatencyMetric = Literal["ttft_p50", "ttft_p90", "tpot_p50", "tpot_p90"]
Metric = Literal["ttft_p90", "tpot_p90", "step_p50_us", "callback_p50_us", "unexplained_us"]
Unit = Literal["ratio", "us"]
Verdict = Literal["valid", "invalid"]
TaxVerdict = Literal["tax", "gain", "no_tax_found", "undetermined", "unavailable"]
BlockVerdict = Literal["tax", "gain", "no_tax_found"]
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
# A launch at a reference rate: of a block, or of phase B', which is in none.
Launch = Annotated[str, msgspec.Meta(pattern=r"^(a|b|b_prime|r[1-9][0-9]*)$")]
# Of a tax of a cell, and of the one that stands.
TaxPhase = Annotated[str, msgspec.Meta(pattern=r"^(a|b|b_prime|c)$")]
MainPhase = Annotated[str, msgspec.Meta(pattern=r"^(a|b|b_prime)$")]
# A number as a key.
Digits = Annotated[str, msgspec.Meta(pattern="^[0-9]+$")]
# What JSON holds beside lists and objects.
Scalar = str | int | float | bool | None
