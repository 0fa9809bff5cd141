"""What ``/metrics`` says of the prefix cache before and after a cell; a server that does not answer in time is not asked again."""

import sys
import threading
from collections.abc import Callable

from connector_tax.base.records.target import Target
from connector_tax.load.server import client_of
from connector_tax.run.loadgen.prefix_hits import Counters
from connector_tax.run.sampler.sampler import scrape

# For the whole answer, however it trickles in.
WITHIN_S = 3.0


def _ask(target: Target) -> Counters:
    """Empty where the server exports no metrics; gives up only after nobody waits for it any more."""
    try:
        with client_of(target) as client:
            return scrape(client, target.base_url, 2 * WITHIN_S)
    except OSError:
        return {}


class CacheCounters:
    """Asks one server.

    Args:
        ask: blocks until the server has answered.
    """

    def __init__(
        self,
        target: Target,
        *,
        ask: Callable[[Target], Counters] = _ask,
        within_s: float = WITHIN_S,
    ) -> None:
        self._target = target
        self._ask = ask
        self._within_s = within_s
        self._silent = False

    def now(self) -> Counters:
        """Empty where the server tells nothing, or not in time."""
        if self._silent:
            return {}
        found: list[Counters] = []
        # What blocks in there for ever must not keep the process from ending.
        asking = threading.Thread(target=lambda: found.append(self._ask(self._target)), daemon=True)
        asking.start()
        asking.join(self._within_s)
        if asking.is_alive():
            self._silent = True
            print(
                f"{self._target.base_url}/metrics: no answer in {self._within_s:g} s; it is not asked again, and hits of a prefix cache "
                "are not known",
                file=sys.stderr,
            )
        return found[0] if found else {}
