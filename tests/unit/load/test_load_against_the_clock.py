"""What ``connector-tax load`` says of limits on latency, on a server whose time is known: held against the clock."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
from test_load_command import measured, streamed
from truth_server import Reply


def test_the_highest_rate_within_limits_is_found(tmp_path: Path) -> None:
    """A server that takes 20 ms a request, one after the other: it holds below 50 req/s and not above."""
    turn = None

    async def script(reply: Reply, request: dict[str, Any], number: int) -> None:
        nonlocal turn
        turn = turn or asyncio.Lock()
        async with turn:
            await asyncio.sleep(0.02)
        await streamed(reply, request, number)

    search = ("--find-rate", "10:200", "--slo", "ttft_p90=150ms", "--precision", "20%", "--shape", "8,2")
    times = ("--duration", "1", "--warmup", "0.2", "--min-completed", "5")
    _, said = measured(tmp_path, *search, *times, script=script, judged=True)
    found = json.loads((tmp_path / "summary.json").read_text())["search"]
    assert 20 <= found["highest_per_s"] <= 52
    assert found["fails_per_s"] <= found["highest_per_s"] * 1.2 * 1.001
    assert "requests/s is the highest rate that holds" in said
