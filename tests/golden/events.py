"""The events of cells in the order in which they came, and the names that the load-generator specification has."""

import json
from pathlib import Path
from typing import Any

from truth_server import DONE, Reply, token_event, truth_server, usage_event

from . import adapters


def script(reply: Reply, request: dict[str, Any], number: int) -> None:
    """Three tokens in a stream; in one piece where that is asked for; every third request is refused."""
    if number % 3 == 0:
        reply.raw(b"HTTP/1.1 503 X\r\nContent-Length: 4\r\n\r\nbusy")
    elif request["stream"]:
        reply.head()
        reply.body(3 * token_event() + usage_event(len(request["prompt"]), 3) + DONE)
        reply.end()
    else:
        usage = {"prompt_tokens": len(request["prompt"]), "completion_tokens": 3}
        text = json.dumps({"choices": [{"text": "xxx"}], "usage": usage}).encode()
        reply.raw(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
            % (len(text), text)
        )


def events(options: str, folder: Path) -> list[str]:
    """One request after the other, so that only one order is possible; coordinator and worker have one clock."""
    folder.mkdir()
    given = [*options.split(), "--concurrency", "1", "--num-prompts", "3", "--shape", "8,3", "--nonce", "7"]
    (spec,) = adapters.load_cells(given, folder)
    with truth_server(script) as url:
        adapters.run_session(spec, url, folder)
    rows = [
        json.loads(line)
        for path in sorted(folder.glob("events_*.jsonl"))
        for line in path.read_text().splitlines()
    ]
    rows.sort(key=lambda row: row.pop("t_ns"))
    return [" ".join(f"{name}={value}" for name, value in sorted(row.items())) for row in rows]


def build(folder: Path) -> dict[str, Any]:
    return {
        "streamed": events("", folder / "streamed"),
        "in one piece": events("--no-stream", folder / "whole"),
        "names": adapters.load_generator_names(),
    }
