"""A step's result, available when the clock says so."""

from vllm.v1.outputs import AsyncModelRunnerOutput, ModelRunnerOutput

from virtual_gpu.clock import Clock, Launched


class ClockedOutput(AsyncModelRunnerOutput):
    """The result that vLLM waits for: at once, or with asynchronous scheduling while it prepares a step."""

    def __init__(
        self, output: ModelRunnerOutput, token_ids: list[list[int]], clock: Clock, step: Launched
    ) -> None:
        self.output = output
        self._token_ids = token_ids
        self._clock = clock
        self._step = step

    def get_output(self) -> ModelRunnerOutput:
        self._clock.wait(self._step)
        self.output.sampled_token_ids = self._token_ids
        return self.output


def model_runner_output(req_ids: list[str]) -> ModelRunnerOutput:
    """Return an output without tokens."""
    index = {request_id: k for k, request_id in enumerate(req_ids)}
    return ModelRunnerOutput(req_ids=req_ids, req_id_to_index=index)
