"""Conversions between the one internal unit (integer nanoseconds) and what people read."""

NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000
NS_PER_US = 1_000
# 146 years: beyond it nothing is a time, and what is below can be added and subtracted in 64 bits.
MOST_NS = 2**62


def s_to_ns(seconds: float) -> int:
    return round(seconds * NS_PER_S)


def duration_text(seconds: float) -> str:
    """``3725`` -> ``"1 h 02 min"``; for progress lines, never parsed back."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60:02d} min"
