"""Where a request goes: given what each instance's load is and would be with it.

A pushing router always names an instance, and the request waits there; a pulling one names only instances
with room, and the request waits at the gateway. An instance with nothing to do has room for any request.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from connector_tax.fleet.patterns import Request

# Loads are sums of floats: ten times 0.1 must still fit.
FULL = 1.0 + 1e-9


@dataclass(frozen=True, slots=True)
class Placement:
    """One of those who may go next on one instance, as the gateway sees it.

    Attributes:
        urgency: place of the request among the queue's heads, 0 first.
        load: of what was sent to the instance and has not finished.
        load_after: the same with the request.
    """

    request: Request
    urgency: int
    instance: int
    load: float
    load_after: float

    @property
    def fits(self) -> bool:
        return self.load_after <= FULL or self.load == 0.0


Choose = Callable[[Sequence[Placement], random.Random], Placement]


@dataclass(frozen=True, slots=True)
class Router:
    """``choose`` among all placements for a pushing router, among those that fit for a pulling one."""

    pulls: bool
    choose: Choose


def anywhere(placements: Sequence[Placement], rng: random.Random) -> Placement:
    return placements[rng.randrange(len(placements))]


def least_load(placements: Sequence[Placement], rng: random.Random) -> Placement:
    """The most urgent request, where it finds least."""
    return min(placements, key=lambda p: (p.urgency, p.load_after, p.instance))


def best_fit(placements: Sequence[Placement], rng: random.Random) -> Placement:
    """The request and the instance that leave least room."""
    return min(placements, key=lambda p: (-p.load_after, p.urgency, p.instance))


ROUTERS = {
    "random_push": Router(False, anywhere),
    "least_load_push": Router(False, least_load),
    "least_load_pull": Router(True, least_load),
    "binpack_pull": Router(True, best_fit),
}
