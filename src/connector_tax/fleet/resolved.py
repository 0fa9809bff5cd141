"""The settings that a campaign's engine resolved, as far as a model of it needs them."""

import msgspec
from msgspec import field

from connector_tax.base.errors import ArtifactError
from connector_tax.base.units import token_count
from connector_tax.base.vllm_model.shape import BYTES
from connector_tax.read.ingest import CampaignData

_CARDS = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")


class Resolved(msgspec.Struct, frozen=True):
    """Resolved settings by vLLM's names; None if unknown.

    Attributes:
        num_gpu_blocks, block_size: of the KV cache.
        moe_config: file with the tile sizes of the MoE kernels, with its folder; ``default`` if vLLM has none
            for the card.
    """

    max_num_seqs: int | None = field(name="scheduler_config.max_num_seqs", default=None)
    max_num_batched_tokens: int | None = field(name="scheduler_config.max_num_batched_tokens", default=None)
    async_scheduling: bool | None = field(name="scheduler_config.async_scheduling", default=None)
    num_gpu_blocks: int | None = field(name="cache_config.num_gpu_blocks", default=None)
    block_size: int | None = field(name="cache_config.block_size", default=None)
    cache_dtype: str | None = field(name="cache_config.cache_dtype", default=None)
    attention_backend: str | None = field(name="log.attention_backend", default=None)
    model_runner: str | None = field(name="log.model_runner", default=None)
    moe_config: str | None = field(name="log.moe_config", default=None)
    tensor_parallel_size: int | None = field(name="parallel_config.tensor_parallel_size", default=None)
    pipeline_parallel_size: int | None = field(name="parallel_config.pipeline_parallel_size", default=None)
    data_parallel_size: int | None = field(name="parallel_config.data_parallel_size", default=None)

    @property
    def batched_tokens(self) -> int:
        """Most tokens in a step; vLLM's default if unknown."""
        return self.max_num_batched_tokens or 2048

    @property
    def kv_tokens(self) -> int | None:
        return self.num_gpu_blocks * self.block_size if self.num_gpu_blocks and self.block_size else None

    @property
    def kv_value_bytes(self) -> int | None:
        if self.cache_dtype is None:
            return None
        return 1 if self.cache_dtype.startswith("fp8") else BYTES

    @property
    def cards(self) -> dict[str, int]:
        """Number of GPUs by kind of parallelism."""
        return {name: getattr(self, name) or 1 for name in _CARDS}


def resolved_of(data: CampaignData, config: str) -> Resolved:
    """Return the settings that ``config`` was launched with, overridden by those that its engine reported.

    Raises:
        ArtifactError: a setting has another type than vLLM's.
    """
    args = data.config.engine.args
    launched = {
        f"scheduler_config.{name}": token_count(args.get(name))
        for name in ("max_num_seqs", "max_num_batched_tokens")
    } | {f"parallel_config.{name}": args.get(name) for name in _CARDS}
    reported = {name: value for name, value in data.settings_of(config).items() if value is not None}
    try:
        # Not strict: campaign.json may hold a number as text, as on a command line.
        return msgspec.convert({**launched, **reported}, Resolved, strict=False)
    except msgspec.ValidationError as error:
        raise ArtifactError(
            f"{data.root}: engine.settings in the cells of {config}, engine_diff.json or engine.args in"
            f" campaign.json: {error}. Remove what says so and start again to have it written."
        ) from error
