"""Measuring within a limit of time: no cell and no launch begins that would not be finished before it."""

from dataclasses import dataclass
from time import monotonic

from connector_tax.base.plan.duration import expected_cell_s
from connector_tax.base.records.cell import CellSpec
from connector_tax.base.units import duration_text

# After a cell's window its last requests end, and its step records are cut.
CUT_S = 5.0


class OutOfTime(Exception):
    """What is left does not fit before the limit. Finished cells stay; the run has no receipt and is gone on with later."""


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """When measuring has to be over.

    Attributes:
        until_s: on the clock of ``time.monotonic``.
        launch_s: what a launch takes here until it serves.
    """

    until_s: float
    launch_s: float

    @property
    def last_launch_s(self) -> float:
        """After that no launch would be over any more that begins."""
        return self.until_s - self.launch_s

    def check_launch(self, first: CellSpec, requests_per_s: float) -> None:
        """
        Args:
            requests_per_s: of the cell; of one of sessions the rate of their turns, which are what completes.

        Raises:
            OutOfTime: a launch and its ``first`` cell take longer than what is left.
        """
        self._check(
            self.launch_s + _cell_s(first, requests_per_s, most=False), f"a launch and cell {first.cell_id}"
        )

    def check_cell(self, cell: CellSpec, requests_per_s: float, *, first: bool) -> None:
        """A launch is made for its first cell, which begins if it can be finished; a later one if it will be.

        Args:
            requests_per_s: as above.

        Raises:
            OutOfTime: the cell takes longer than what is left.
        """
        self._check(_cell_s(cell, requests_per_s, most=not first), f"cell {cell.cell_id}")

    def _check(self, needed_s: float, what: str) -> None:
        left_s = self.until_s - monotonic()
        if needed_s > left_s:
            raise OutOfTime(
                f"{what} may take {duration_text(needed_s)}, and {duration_text(max(left_s, 0.0))} are left"
            )


def _cell_s(cell: CellSpec, requests_per_s: float, *, most: bool) -> float:
    return expected_cell_s(cell, requests_per_s, most=most) + CUT_S
