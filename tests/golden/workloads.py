"""What is sent: every byte of the first requests of each workload."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from truth_server import Reply, truth_server

from . import adapters
from .schedules import files_in, play

TARGET = adapters.target_of(
    "http://127.0.0.1:8000/llm/v1", "m", headers=(("X-Tenant", "a"), ("Authorization", "Bearer k"))
)
N = 12
# Across the end of a block in which lengths are drawn.
FAR = (1023, 1024, 4999)

PROMPTS = """{"prompt": [101, 2023, 2003], "output_tokens": 8}
{"prompt": "Once upon a time, \\u00fcber \\ud83d\\ude00", "output_tokens": 64}
{"prompt": "\\"quoted\\"\\n", "output_tokens": 1}
"""
MESSAGES = """{"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}], "output_tokens": 16}
{"messages": [{"role": "user", "content": [{"type": "text", "text": "\\u00fc"}]}], "output_tokens": 3}
"""
SHARE_GPT = json.dumps(
    [
        {
            "conversations": [
                {"from": "human", "value": "What is 2+2?"},
                {"from": "gpt", "value": "It is 4." * 9},
            ]
        },
        {"conversations": [{"from": "gpt", "value": "no question"}]},
        {"conversations": [{"from": "user", "value": "And you?"}, {"from": "assistant", "value": "Fine."}]},
    ]
)
TEXT = "Once upon a time\n\nthere was a server\n"

FILES = {"prompts.jsonl": PROMPTS, "messages.jsonl": MESSAGES, "share_gpt.json": SHARE_GPT, "text.txt": TEXT}
SAMPLING = '--temperature 0.7 --top-p 0.9 --top-k 40 --extra-body {"min_p":0.1,"stop":["#"]}'
# Options of `connector-tax load`, and whether the workload is random words, of which an English one is 1.25 tokens.
OPTIONS: dict[str, tuple[str, bool]] = {
    "token ids": ("--rate 4 --shape 4096,256", False),
    "token ids, short prompts": ("--rate 4 --shape 16,4 --token-ids 100,9999999", False),
    "token ids, drawn lengths": (
        "--rate 4 --input-length lognormal:1024,800,16,8192 --output-length uniform:50,400",
        False,
    ),
    "token ids, normal lengths, in one piece": (
        "--rate 4 --shape 1,32 --input-length normal:256,64 --no-stream",
        False,
    ),
    "completions of words": ("--rate 4 --shape 128,16 --text --honor-eos", True),
    "chat": (f"--rate 4 --shape 512,64 --api chat {SAMPLING}", True),
    "chat, in one piece": ("--rate 4 --shape 8,2 --api chat --no-stream --honor-eos", True),
    "prompts, JSONL": ("--rate 4 --prompts prompts.jsonl", False),
    "prompts, messages": ("--rate 4 --prompts messages.jsonl --api chat", False),
    "prompts, ShareGPT as chat": ("--rate 4 --prompts share_gpt.json --api chat --chars-per-token 3", False),
    "prompts, lines of text": ("--rate 4 --prompts text.txt --output-length uniform:5,50", False),
    "trace, Azure": ("--trace azure.csv", False),
    "trace, Mooncake": ("--trace mooncake.jsonl", False),
    "conversations": ("--concurrency 3 --sessions sessions.jsonl", False),
}
# Of a request that a library writes: the rest is its own, and depends on its version or on the port.
KEPT_HEADERS = ("accept", "authorization", "content-type")


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def rendered(spec: adapters.CellSpec) -> list[bytes]:
    """The first requests in the order in which they are sent; where they depend on nothing, also some far behind."""
    scheduler, workload = adapters.work_of(spec, TARGET)
    requests: list[bytes] = []

    def end(seq: int, ok: bool) -> None:
        _, wanted = workload.lengths(seq)
        workload.answered(seq, [1000 + seq + k for k in range(wanted or 0)])
        workload.ended(seq)

    play(scheduler, N, on_send=lambda seq: requests.append(workload.render(seq)), on_end=end)
    if spec.sessions is None:
        requests += [workload.render(seq) for seq in FAR]
    return requests


def told(requests: list[bytes]) -> dict[str, Any]:
    """Checksums, and the first request as far as a person wants to see it."""
    head, _, body = requests[0].partition(b"\r\n\r\n")
    return {
        "head": head.decode().split("\r\n"),
        "body": body[:200].decode(errors="replace"),
        "sha256": [sha256(request) for request in requests],
    }


def asked(ask: Callable[[str], object]) -> dict[str, Any]:
    """What ``ask`` sends to a server by way of a library: bodies as values, heads without what is the library's."""
    seen: list[tuple[list[str], Any]] = []

    def script(reply: Reply, request: dict[str, Any], number: int) -> None:
        head, _, body = reply.asked.partition(b"\r\n\r\n")
        first, *headers = head.decode().split("\r\n")
        kept = sorted(
            f"{k.lower()}: {v}"
            for k, _, v in (h.partition(": ") for h in headers)
            if k.lower() in KEPT_HEADERS
        )
        seen.append(([first, *kept], json.loads(body)))
        prompt = request.get("prompt") or request["messages"][0]["content"]
        n = len(prompt) if isinstance(prompt, list) else len(prompt.split()) + 3
        usage = {"prompt_tokens": n, "completion_tokens": 1}
        text = json.dumps({"choices": [{"text": "x", "token_ids": [1]}], "usage": usage}).encode()
        reply.raw(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
            % (len(text), text)
        )

    with truth_server(script) as url:
        ask(url)
    bodies = [json.dumps(body, sort_keys=True).encode() for _, body in seen]
    assert all(head == seen[0][0] for head, _ in seen)
    return {"head": seen[0][0], "body": bodies[0][:200].decode(), "sha256": [sha256(body) for body in bodies]}


def build(folder: Path) -> dict[str, Any]:
    names = files_in(folder)
    for name, text in FILES.items():
        (folder / name).write_text(text)
        names[name] = str(folder / name)
    found = {"campaign": told(rendered(adapters.campaign_cell()))}
    for name, (options, of_words) in OPTIONS.items():
        words = [names.get(word, word) for word in options.split()]
        (spec,) = adapters.load_cells(
            [*words, "--seed", "5", "--nonce", "7"], folder, tokens_per_word=1.25 if of_words else None
        )
        found[name] = told(rendered(spec))
    found["accuracy prompts"] = asked(adapters.ask_accuracy)
    found["priming"] = asked(lambda url: adapters.prime(url, 5000))
    found["words to be counted"] = asked(
        lambda url: adapters.ask_words(url, ["--rate", "4", "--api", "chat", "--nonce", "7"], folder)
    )
    return found
