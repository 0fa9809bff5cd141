"""The share of one tax in a connector's, for instance the no-op connector's."""

from dataclasses import replace

import numpy as np

from connector_tax.base.statistics.bootstrap import Estimate, combine, unavailable
from connector_tax.base.statistics.outcomes import GAIN, effect_of
from connector_tax.base.statistics.resampling import Floats


def share_of(part: Estimate, whole: Estimate, confidence: float) -> Estimate:
    """Return ``part / whole``, both of which have a number; a gain has no shares."""
    combined = combine(part, whole)
    assert part.point is not None and whole.point is not None
    if not whole.point:
        return unavailable("zero", combined.n)
    if effect_of(*whole.interval(confidence)) == GAIN:
        return unavailable("no_tax", combined.n)
    share = combined.estimate(part.point / whole.point, shares(*combined.replicates))
    # Open ends of part and whole have their own reason.
    known = None not in (*part.interval(confidence), *whole.interval(confidence))
    open_end = known and None in share.interval(confidence)
    return replace(share, reason="open_tax") if open_end else share


def shares(part: Floats, whole: Floats) -> Floats:
    """Return resamples of a share of a tax; infinite, with the part's sign, if the tax is not positive.

    A share grows without bound as the whole shrinks to zero. Below zero the quotient would return from the
    other side, as small or negative shares, and the interval would end too low.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        beyond = np.where(part == 0, np.nan, np.copysign(np.inf, part))
        ratios: Floats = np.where(whole > 0, part / whole, beyond)
    ratios[np.isnan(part) | np.isnan(whole)] = np.nan
    return ratios
