"""What an engine answers to a fixed set of prompts: the guard against a connector that is fast because it is
wrong.

Sent one by one at temperature 0, so that batching changes nothing; a difference from plain's answers is then
the connector's, unless plain differs from itself between two launches as well.
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
    """One entry per prompt: ``token_ids``; ``text`` where the server does not give ids; ``error`` where it
    failed.

    Args:
        token_ids: prompts are drawn from this range, the same ones for every configuration of a campaign.
        headers: of every request, such as the key that the server asks for.
    """
    rng = stream(seed, "accuracy")
    drawn = rng.integers(*token_ids, size=(prompts, input_tokens), dtype=np.int64)
    with direct.Client(base_url=base_url, timeout_s=TIMEOUT_S, headers=headers) as client:
        outputs: list[Output] = []
        for prompt in drawn:
            if outputs and outputs[-1].get("error", "").startswith(NO_ANSWER):
                # One that hangs would take as long again for each.
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
        answer = client.post("/v1/completions", json=request)
        answer.raise_for_status()
        found = read_completion(answer.content)
        (choice,) = list(found.choices or ())
        if choice.token_ids is not None:
            return {"token_ids": found.ids(answer.content)}
        return {"text": choice.text} if isinstance(choice.text, str) else {"error": "neither ids nor text"}
    except httpx.TimeoutException:
        return {"error": f"{NO_ANSWER} within {TIMEOUT_S:g} s"}
    except (httpx.HTTPError, ValueError, MalformedStream) as error:
        return {"error": f"{type(error).__name__}: {error}"}
