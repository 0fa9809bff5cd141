"""Reads the device from CONNECTOR_TAX_VIRTUAL_GPU, a JSON file in the launch's folder."""

import json
import os
from dataclasses import dataclass
from pathlib import Path

from virtual_gpu.registration import VARIABLE

SCHEMA = 1
# Its module imports without CUDA, and its block sizes, layouts and CUDA-graph support are those of most GPUs.
ATTENTION = "vllm.v1.attention.backends.flash_attn.FlashAttentionBackend"


@dataclass(frozen=True)
class Step:
    """Duration of a step on the device, in microseconds.

    ``per_context_token_us`` applies to each token that a sequence computed before the step: its keys and
    values are read.
    """

    base_us: float
    per_prefill_token_us: float
    per_decode_seq_us: float
    per_context_token_us: float

    def duration_ns(self, prefill_tokens: int, decode_seqs: int, context_tokens: int) -> int:
        return round(
            1e3
            * (
                self.base_us
                + self.per_prefill_token_us * prefill_tokens
                + self.per_decode_seq_us * decode_seqs
                + self.per_context_token_us * context_tokens
            )
        )


@dataclass(frozen=True)
class Host:
    """Host work of a GPU's model runner that a clock does not need, as busy time in microseconds."""

    before_launch_us: float
    before_launch_per_seq_us: float
    after_launch_us: float


@dataclass(frozen=True)
class Device:
    """One virtual GPU.

    Attributes:
        kv_cache_bytes: memory that this GPU would have left for keys and values beside the model.
        host_link_bytes_per_s: of copies between device and host, each way; 0 if not given, and then no
            connector that copies can run.
        clock_log: file for the steps' times.
    """

    name: str
    compute_capability: tuple[int, int]
    memory_bytes: int
    kv_cache_bytes: int
    step: Step
    host: Host
    clock_log: Path
    host_link_bytes_per_s: int = 0


def read_device() -> Device:
    """Read the device.

    Raises:
        RuntimeError: the document is missing or malformed; says why.
    """
    path = os.environ.get(VARIABLE, "")
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
        if document["schema"] != SCHEMA:
            raise ValueError(f"schema {document['schema']!r}, but {SCHEMA} is read here")
        major, minor = document["compute_capability"]
        return Device(
            name=document["name"],
            compute_capability=(int(major), int(minor)),
            memory_bytes=int(document["memory_bytes"]),
            kv_cache_bytes=int(document["kv_cache_bytes"]),
            step=Step(**document["step"]),
            host=Host(**document["host"]),
            clock_log=Path(document["clock_log"]),
            host_link_bytes_per_s=int(document.get("host_link_bytes_per_s", 0)),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RuntimeError(f"{VARIABLE}: {path}: no virtual GPU can be read there ({error!r})") from error
