"""Sessions of common forms, for tests."""

from connector_tax.base.records.sessions import Session, Turn


def linear(turns: int, *, first_tokens: int, next_tokens: int, output_tokens: int, wait_s: float) -> Session:
    """Return a conversation: each turn follows the one before and repeats everything so far."""
    first = Turn(first_tokens, output_tokens)
    rest = (Turn(next_tokens, output_tokens, (k - 1,), (k - 1,), wait_s) for k in range(1, turns))
    return Session((first, *rest))


def fan_out_and_in(
    width: int, *, first_tokens: int, next_tokens: int, output_tokens: int, wait_s: float
) -> Session:
    """Return an agent's round: one turn, ``width`` parallel ones that know it, one that waits for all."""
    root = Turn(first_tokens, output_tokens)
    branches = (Turn(next_tokens, output_tokens, (0,), (0,), wait_s) for _ in range(width))
    return Session(
        (root, *branches, Turn(next_tokens, output_tokens, tuple(range(1, width + 1)), (1,), wait_s))
    )
