"""Replaces attributes of modules and classes."""

from typing import Any


def replace(holder: Any, **parts: Any) -> None:
    """Replace attributes of ``holder``.

    Raises:
        AttributeError: there is none of that name, so the stand-in was written for another release.
    """
    for name, part in parts.items():
        if not hasattr(holder, name):
            raise AttributeError(f"{getattr(holder, '__name__', holder)} has no {name}")
        setattr(holder, name, part)


def said_of(scale: Any, streams: Any) -> str:
    """Return how long a copy takes, for the log."""
    gb_per_s = streams.host_link_bytes_per_s / 1e9
    return (
        f"no KV is copied; a copy takes as long as {scale.true_bytes / 1e6:.3g} MB a block at {gb_per_s:.4g}"
        " GB/s"
    )
