"""An engine that lives and answers nobody any more, told from one that has too much to do.

Both leave requests unanswered. When the client is gone, vLLM lets go of its requests within a step or two; so an engine that merely was
overloaded answers the next one soon, and one that hangs never does. Left alone it would cost every cell of its launch.
"""

import time

import httpx
import numpy as np

from connector_tax.base import direct
from connector_tax.base.records.cell import CellSpec
from connector_tax.base.records.request import RequestRecord
from connector_tax.base.seeds import stream
from connector_tax.run.engine.process import RunningEngine

# A step takes milliseconds, and one that meets a shape for the first time up to some ten seconds.
HUNG_AFTER_S = 60.0
PROMPT_TOKENS = 8
# Behind a queue that grows, as before one that hangs as well, the client gives up what is in flight.
UNANSWERED = ("timeout", "aborted")


def hangs(engine: RunningEngine, spec: CellSpec, requests: list[RequestRecord]) -> str | None:
    """Why an engine that left requests of a cell unanswered is to be taken for dead; None where it answers one now.

    Nobody else may ask it meanwhile.
    """
    if not any(r.status in UNANSWERED for r in requests):
        return None
    rng = stream(time.monotonic_ns(), "hanging")
    prompt = rng.integers(spec.token_id_low, spec.token_id_high, PROMPT_TOKENS, dtype=np.int64).tolist()
    body = {"model": engine.model, "prompt": prompt, "max_tokens": 1, "temperature": 0, "ignore_eos": True}
    try:
        with direct.Client(
            base_url=engine.base_url, headers=engine.headers, timeout_s=HUNG_AFTER_S
        ) as client:
            client.post("/v1/completions", json=body)
    except httpx.TimeoutException:
        return f"it hangs: it gave no token within {HUNG_AFTER_S:g} s though nobody else asked; {engine.last_words()}"
    except httpx.HTTPError:
        return None  # refused or reset: an answer, or a death, which is asked for elsewhere
    return None
