"""What ``/metrics`` says of the prefix cache before and after a cell. Where it says nothing, one line says why."""

import sys
import threading
from collections.abc import Callable

from connector_tax.base.opening import printable
from connector_tax.base.records.target import Target
from connector_tax.load.server import client_of
from connector_tax.run.loadgen.prefix_hits import HITS, Counters
from connector_tax.run.sampler.sampler import scrape

# For the whole answer, however it trickles in.
WITHIN_S = 3.0
# Of what the server says in place of metrics.
MOST_CHARS = 300


def _ask(target: Target) -> Counters:
    """Gives up only after nobody waits for it any more.

    Raises:
        OSError: the server exports no metrics.
    """
    with client_of(target) as client:
        return scrape(client, target.base_url, 2 * WITHIN_S)


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
        self._said = ""

    def now(self) -> Counters:
        """Empty where the server tells nothing, or not in time."""
        if self._silent:
            return {}
        url = f"{self._target.base_url}/metrics"
        found: Counters = {}
        why = f"{url}: no counter of a prefix cache is in it"

        def ask() -> None:
            nonlocal found, why
            try:
                found = self._ask(self._target)
            except OSError as error:
                why = printable(str(error), MOST_CHARS)

        # What blocks in there for ever must not keep the process from ending.
        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        asking.join(self._within_s)
        if asking.is_alive():
            self._silent = True
            why = f"{url}: no answer in {self._within_s:g} s; it is not asked again"
            self._say(why)
            return {}
        if HITS not in found:
            self._say(why)
        return found

    def _say(self, why: str) -> None:
        """Once, and not before and after each cell."""
        if why != self._said:
            self._said = why
            print(f"{why}. Hits of a prefix cache are not known.", file=sys.stderr)
