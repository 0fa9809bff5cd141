"""What an engine of a campaign resolved its settings to, as far as a model of it asks."""

import msgspec
from msgspec import field

from connector_tax.base.errors import ArtifactError
from connector_tax.base.units import token_count
from connector_tax.base.vllm_model.shape import BYTES
from connector_tax.read.ingest import CampaignData

_CARDS = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")


class Resolved(msgspec.Struct, frozen=True):
    """By vLLM's names; None where it is not known.

    Attributes:
        num_gpu_blocks, block_size: of the KV cache.
        moe_config: the file with the tile sizes of the MoE kernels, and its folder; ``default`` where vLLM
            has none for the card.
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
        """A step's at most; vLLM's default where it is not known."""
        return self.max_num_batched_tokens or 2048

    @property
    def kv_tokens(self) -> int | None:
        """What the KV cache holds."""
        return self.num_gpu_blocks * self.block_size if self.num_gpu_blocks and self.block_size else None

    @property
    def kv_value_bytes(self) -> int | None:
        """Of one value in the KV cache."""
        if self.cache_dtype is None:
            return None
        return 1 if self.cache_dtype.startswith("fp8") else BYTES

    @property
    def cards(self) -> dict[str, int]:
        """By the name of each kind of parallelism."""
        return {name: getattr(self, name) or 1 for name in _CARDS}


def resolved_of(data: CampaignData, config: str) -> Resolved:
    """What ``config`` was launched with, and in its place what its engine told where it told something.

    Raises:
        ArtifactError: a setting is of another type than vLLM's.
    """
    args = data.config.engine.args
    asked = {
        f"scheduler_config.{name}": token_count(args.get(name))
        for name in ("max_num_seqs", "max_num_batched_tokens")
    } | {f"parallel_config.{name}": args.get(name) for name in _CARDS}
    known = {name: value for name, value in data.settings_of(config).items() if value is not None}
    try:
        # Not strict: a number in campaign.json may be written as text, as a command line has it.
        return msgspec.convert({**asked, **known}, Resolved, strict=False)
    except msgspec.ValidationError as error:
        raise ArtifactError(
            f"{data.root}: engine.settings in the cells of {config}, engine_diff.json or engine.args in"
            f" campaign.json: {error}. Remove what says so and start again to have it written."
        ) from error
