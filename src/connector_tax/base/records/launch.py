"""A launch as far as it shapes a measurement; part of the hash of each cell."""

from msgspec import UNSET, UnsetType

from connector_tax.base.records.bounds import Foreign
from connector_tax.base.records.host import VirtualGpu
from connector_tax.base.records.rates import Record


class LaunchSpec(Record, frozen=True, kw_only=True):
    """Everything about a launch that shapes a measurement; ``UNSET`` where an older version's cell lacks it.

    Attributes:
        args, extra_args, env: of engine and connector together.
        kv_transfer_config: None for plain vLLM.
        model_sha256, virtual_gpu: ``UNSET`` if there is none, so that the hashes of other launches keep their
            values from before these keys.
    """

    kind: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    served_model_name: str | UnsetType = UNSET
    args: Foreign | UnsetType = UNSET
    extra_args: tuple[str, ...] | UnsetType = UNSET
    env: dict[str, str] | UnsetType = UNSET
    model_file: str | UnsetType | None = UNSET
    model_sha256: str | UnsetType = UNSET
    step_timing: bool | UnsetType = UNSET
    pin_cpus: bool | UnsetType = UNSET
    kv_transfer_config: Foreign | UnsetType | None = UNSET
    virtual_gpu: VirtualGpu | UnsetType = UNSET

    @property
    def has_connector(self) -> bool:
        return bool(self.kv_transfer_config)
