"""What a host's settings mean for a measurement, in words for preflight."""

from pathlib import Path

AUTOGROUP = Path("/proc/sys/kernel/sched_autogroup_enabled")


def cpu_by_session(setting: Path = AUTOGROUP) -> str | None:
    """Where the kernel shares the CPU out by session, what that does to a campaign; None where it does not, or does not say."""
    try:
        on = setting.read_text(encoding="ascii").strip() == "1"
    except (OSError, UnicodeDecodeError):
        return None
    if not on:
        return None
    return (
        "this kernel shares the CPU out by session: whatever runs in another session, a shell included, gets as much of it as the whole "
        "campaign. Leave the host alone while it measures, or set `sysctl kernel.sched_autogroup_enabled=0` (docs/decisions/0024)."
    )
