"""How large what is read can be, and the base of what a person writes. Whoever wrote a file may have written
anything, and statistics compute with it."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from connector_tax.base.units import MOST_NS, MOST_TOKENS

# JSON that somebody else defines: arguments and settings of vLLM, the answer of a server, the config.json of
# a model. No document of ours.
Foreign = dict[str, Any]
# A fact that is told and compared, and not computed with.
Fact = str | int | float | bool | None

# Monotonic and wall time alike; what is subtracted from one another stays in 64 bits.
TimeNs = Annotated[int, Meta(ge=0, le=MOST_NS)]
Seconds = Annotated[float, Meta(ge=0, le=1e9)]
Tokens = Annotated[float, Meta(ge=0, le=MOST_TOKENS)]
WholeTokens = Annotated[int, Meta(ge=0, le=MOST_TOKENS)]
Length = Annotated[int, Meta(ge=1, le=10**9)]
# An answer of one token has no time between tokens.
OutputLength = Annotated[int, Meta(ge=2, le=10**9)]
Text = Annotated[str, Meta(min_length=1)]
# A folder of results is called so.
CampaignName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*\Z", max_length=100)]
# Of an environment variable.
VariableName = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*\Z")]
# Conversations have lengths of their own, and 0 here.
LengthOr0 = Annotated[int, Meta(ge=0, le=10**9)]
# The lowest is a millionth, and a shape is measured at a millionth of that at least
# (``read/stats/reference.py``).
Rate = Annotated[float, Meta(ge=1e-13, le=1e9)]
# A closed loop has no rate, and 0 here.
RateOr0 = Annotated[float, Meta(ge=0, le=1e9)]
Attempt = Annotated[int, Meta(ge=1, le=10**6)]
CostUs = Annotated[float, Meta(ge=0, le=1e9)]
Bytes = Annotated[int, Meta(ge=0, le=10**18)]
Counter = Annotated[float, Meta(ge=-1e15, le=1e15)]
Span = Annotated[float, Meta(ge=-1e15, le=1e15)]
Share = Annotated[float, Meta(ge=-1e12, le=1e12)]
Whole = Annotated[int, Meta(ge=0, le=10**12)]

# Flags are given more than once, and a version may be 8.8.
_MAY_REPEAT = ("extra_args", "compute_capability")


class Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a file that a person writes: a key that it has not is refused, and so is an entry twice in a
    list."""

    def __post_init__(self) -> None:
        for name in set(self.__struct_fields__).difference(_MAY_REPEAT):
            entries = getattr(self, name)
            if isinstance(entries, tuple):
                for k, entry in enumerate(entries):
                    if entry in entries[:k]:
                        raise ValueError(f"{name}[{k}]: stands there already; leave one of the two out")
