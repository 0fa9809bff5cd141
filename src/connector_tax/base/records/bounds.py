"""Bounds of values in files, which anybody may have written, and the base of types that a person writes."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from connector_tax.base.units import MOST_NS, MOST_TOKENS

# JSON that others define: vLLM's arguments and settings, a server's answer, a model's config.json.
Foreign = dict[str, Any]
# A fact that is reported and compared, but not computed with.
Fact = str | int | float | bool | None

# Monotonic and wall time; differences fit in 64 bits.
TimeNs = Annotated[int, Meta(ge=0, le=MOST_NS)]
Seconds = Annotated[float, Meta(ge=0, le=1e9)]
Tokens = Annotated[float, Meta(ge=0, le=MOST_TOKENS)]
WholeTokens = Annotated[int, Meta(ge=0, le=MOST_TOKENS)]
Length = Annotated[int, Meta(ge=1, le=10**9)]
# An answer of one token has no ITL.
OutputLength = Annotated[int, Meta(ge=2, le=10**9)]
Text = Annotated[str, Meta(min_length=1)]
# The name of a folder of results.
CampaignName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*\Z", max_length=100)]
# The name of an environment variable.
VariableName = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*\Z")]
# 0 for conversations, which have their own lengths.
LengthOr0 = Annotated[int, Meta(ge=0, le=10**9)]
# The lowest rate in a config is a millionth; shapes are measured at no less than a millionth of that
# (``read/stats/reference.py``).
Rate = Annotated[float, Meta(ge=1e-13, le=1e9)]
# 0 for a closed loop, which has no rate.
RateOr0 = Annotated[float, Meta(ge=0, le=1e9)]
Attempt = Annotated[int, Meta(ge=1, le=10**6)]
CostUs = Annotated[float, Meta(ge=0, le=1e9)]
Bytes = Annotated[int, Meta(ge=0, le=10**18)]
Counter = Annotated[float, Meta(ge=-1e15, le=1e15)]
Span = Annotated[float, Meta(ge=-1e15, le=1e15)]
Share = Annotated[float, Meta(ge=-1e12, le=1e12)]
Whole = Annotated[int, Meta(ge=0, le=10**12)]

# Flags may be repeated, and a version may be 8.8.
_MAY_REPEAT = ("extra_args", "compute_capability")


class Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a file that a person writes: unknown keys and repeated list entries are refused."""

    def __post_init__(self) -> None:
        for name in set(self.__struct_fields__).difference(_MAY_REPEAT):
            entries = getattr(self, name)
            if isinstance(entries, tuple):
                for k, entry in enumerate(entries):
                    if entry in entries[:k]:
                        raise ValueError(f"{name}[{k}]: stands there already; leave one of the two out")
