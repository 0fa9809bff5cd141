"""What may be sent while much is on its way: the one rule of the load generator and of the rehearsal."""


def may_send(inflight: int, cap: int) -> bool:
    """False: the arrival is dropped and logged. The schedule does not shift.

    Args:
        inflight: requests of the whole cell on their way now, without the one that is due.
        cap: ``cell.inflight_cap``.
    """
    return inflight < cap
