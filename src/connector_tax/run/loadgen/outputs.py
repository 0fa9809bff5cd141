"""Collects an engine's answers to a fixed set of prompts, which guards against wrong but fast connectors.

The prompts are sent one by one at temperature 0, so batching has no effect. A difference from plain's answers
is then the connector's, unless plain's own launches differ too.
"""

from collections.abc import Mapping

import httpx
import numpy as np

from connector_tax.base import direct
from connector_tax.base.documents.cell import Output
from connector_tax.base.seeds import stream
from connector_tax.run.loadgen.sse import MalformedStream, read_completion

TIMEOUT_S = 120.0
NO_ANSWER = "no answer"


def collect_outputs(
    base_url: str,
    model: str,
    *,
    seed: int,
    prompts: int,
    input_tokens: int,
    output_tokens: int,
    token_ids: tuple[int, int],
    headers: Mapping[str, str] | None = None,
) -> list[Output]:
    """Return one entry per prompt: ``token_ids``, or ``text`` without ids, or ``error``.

    Args:
        token_ids: range of the prompts' ids; all configurations of a campaign get the same prompts.
        headers: of every request, such as the API key.
    """
    rng = stream(seed, "accuracy")
    drawn_prompts = rng.integers(*token_ids, size=(prompts, input_tokens), dtype=np.int64)
    with direct.Client(base_url=base_url, timeout_s=TIMEOUT_S, headers=headers) as client:
        outputs: list[Output] = []
        for prompt in drawn_prompts:
            if outputs and outputs[-1].get("error", "").startswith(NO_ANSWER):
                # A hanging engine would take the whole time-out for each prompt.
                outputs.append({"error": f"{NO_ANSWER} to an earlier prompt"})
            else:
                outputs.append(_ask(client, model, prompt.tolist(), output_tokens))
        return outputs


def _ask(client: direct.Client, model: str, prompt: list[int], output_tokens: int) -> Output:
    request = {
        "model": model,
        "prompt": prompt,
        "max_tokens": output_tokens,
        "temperature": 0,
        "ignore_eos": True,
        # vLLM's extension of the API, since 0.10.2; others ignore it.
        "return_token_ids": True,
    }
    try:
        response = client.post("/v1/completions", json=request)
        response.raise_for_status()
        completion = read_completion(response.content)
        (choice,) = list(completion.choices or ())
        if choice.token_ids is not None:
            return {"token_ids": completion.ids(response.content)}
        return {"text": choice.text} if isinstance(choice.text, str) else {"error": "neither ids nor text"}
    except httpx.TimeoutException:
        return {"error": f"{NO_ANSWER} within {TIMEOUT_S:g} s"}
    except (httpx.HTTPError, ValueError, MalformedStream) as error:
        return {"error": f"{type(error).__name__}: {error}"}
