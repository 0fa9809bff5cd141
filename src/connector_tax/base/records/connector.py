"""A connector configuration as data."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from connector_tax.base.records.bounds import Foreign, Strict, Text, VariableName
from connector_tax.base.records.host import VirtualGpu
from connector_tax.base.records.rates import Record

# Plain's second launch in a block of repeats: plain against itself is the noise floor.
PLAIN_AGAIN = "plain_again"
# Prefix of a configuration's id: plain with that engine's resolved settings.
MATCHED = "plain_matched_"
# In connectors.yaml: the launch's own store folder, initially empty; see ``run/engine/store.py``.
STORE = "${STORE}"
Verify = Literal["serve", "long_prompt", "kv_consumer"]
ConnectorId = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9_]*\Z", max_length=100)]
_Count = Annotated[int, Meta(ge=1)]


class ModuleNeed(Strict, frozen=True):
    """A Python module that the *engine's* interpreter must find, and how to get it.

    Attributes:
        by_cuda: major version of torch's CUDA in the engine -> how to install it there, if different.
    """

    module: str
    install: str
    by_cuda: dict[Annotated[str, Meta(pattern=r"^[0-9]+\Z")], str] = {}

    def install_for(self, cuda: str | None) -> str:
        """Return the command for a CUDA version such as ``13.0``; None: a build without CUDA."""
        return self.by_cuda.get((cuda or "").partition(".")[0], self.install)


class SidePort(Strict, frozen=True):
    """A port that a connector uses beside the API's.

    Attributes:
        env: the variable that sets it; ``port`` is vLLM's default.
        used_by: its purpose, for messages.
        per: ``engine``: one port; ``rank``: consecutive ports, one per tensor- and data-parallel rank.
        listens: false if the engine only connects to it; preflight then starts a listener.
    """

    env: Annotated[str, Meta(pattern=r"^[A-Z][A-Z0-9_]*\Z")]
    port: Annotated[int, Meta(ge=1, le=65535)]
    used_by: Text
    per: Literal["engine", "rank"] = "engine"
    listens: bool = True


class ConnectorEntry(Strict, frozen=True, kw_only=True):
    """One entry of ``config/connectors.yaml``: how a connector is switched on.

    Attributes:
        kv_transfer_config: vLLM's ``--kv-transfer-config``, with kv_connector and kv_role; null is plain
            vLLM.
        env: environment variables of the engine for this configuration only.
        extra_args: further engine arguments for this configuration only.
        modules: modules that the engine's interpreter must find.
        needs_gpu: why it cannot start without a GPU; null if it can.
        min_cores: skipped on hosts with fewer; 0 means any.
        verify: how preflight tries it: serve (or true), short requests; long_prompt, the cache must be active
            as well; kv_consumer, with a dummy bootstrap beside it.
        verify_requests, verify_output_tokens: number of short requests that preflight sends to the warm
            engine, and output tokens of each.
        verify_within_s: seconds in which all of them together must be answered.
        side_ports: ports beside the API's that must be free before a launch.
        ttft_is_no_tax: why its TTFT against plain's is no tax: it claims tokens of new prompts from a cache
            that it does not have, so their prefill is skipped; its external cache hits are then expected.
            null if it is one.
        copies_kv: the destination of its copies of prompts' KV, which nobody fetches from there; its taxes
            include that work. null if it copies none.
    """

    label: Text
    kv_transfer_config: Foreign | None
    env: dict[VariableName, str] = {}
    extra_args: tuple[str, ...] = ()
    modules: tuple[ModuleNeed, ...] = ()
    needs_gpu: str | None = None
    min_cores: Annotated[int, Meta(ge=0)] = 0
    verify: Verify | bool = "serve"
    verify_requests: _Count = 5
    verify_output_tokens: _Count = 32
    verify_within_s: Annotated[float, Meta(gt=0)] = 30.0
    side_ports: tuple[SidePort, ...] = ()
    note: str = ""
    ttft_is_no_tax: Text | None = None
    copies_kv: Text | None = None


class ConnectorSpec(ConnectorEntry, frozen=True, kw_only=True):
    """One configuration of the campaign.

    Attributes:
        id: unique, valid as a file name.
        matches: for a matched baseline, the configuration whose engine settings plain vLLM gets.
    """

    id: ConnectorId
    matches: str | None = None


def is_connector(config: str) -> bool:
    """Return False for all launches of plain, whatever their settings."""
    return config not in ("plain", PLAIN_AGAIN) and not config.startswith(MATCHED)


# A launch as far as it shapes a measurement; part of the hash of each cell.


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
