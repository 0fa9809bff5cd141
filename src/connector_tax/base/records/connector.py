"""A connector configuration: what is switched on, as data."""

from typing import Annotated, Literal

from msgspec import Meta

from connector_tax.base.records.bounds import Foreign, Strict, Text, VariableName

# Plain's second launch in a block of repeats: what plain has against itself is the noise floor.
PLAIN_AGAIN = "plain_again"
# Before a configuration's id: plain with the settings that its engine resolves.
MATCHED = "plain_matched_"
# In an entry of connectors.yaml: the store folder of the launch at hand, empty when it begins; see
# ``run/engine/store.py``.
STORE = "${STORE}"
Verify = Literal["serve", "long_prompt", "kv_consumer"]
ConnectorId = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9_]*\Z", max_length=100)]
_Count = Annotated[int, Meta(ge=1)]


class ModuleNeed(Strict, frozen=True):
    """A Python module that the *engine's* interpreter must find, and how to get it.

    Attributes:
        by_cuda: major version of the CUDA that the engine's torch is built for -> how to get it there, where
            that differs.
    """

    module: str
    install: str
    by_cuda: dict[Annotated[str, Meta(pattern=r"^[0-9]+\Z")], str] = {}

    def install_for(self, cuda: str | None) -> str:
        """The command for this CUDA, ``13.0`` for instance; None: a build without."""
        return self.by_cuda.get((cuda or "").partition(".")[0], self.install)


class SidePort(Strict, frozen=True):
    """A port that a connector uses beside the API's.

    Attributes:
        env: the variable that sets it; ``port`` is vLLM's default.
        used_by: what wants it, for messages.
        per: ``engine``: one port; ``rank``: one more for each tensor- and data-parallel rank, counted on from
            it.
        listens: false where the engine only connects to it, and preflight starts what listens there.
    """

    env: Annotated[str, Meta(pattern=r"^[A-Z][A-Z0-9_]*\Z")]
    port: Annotated[int, Meta(ge=1, le=65535)]
    used_by: Text
    per: Literal["engine", "rank"] = "engine"
    listens: bool = True


class ConnectorEntry(Strict, frozen=True, kw_only=True):
    """One entry of ``config/connectors.yaml``: what switching a connector on means.

    Attributes:
        kv_transfer_config: vLLM's ``--kv-transfer-config``, with kv_connector and kv_role; null is plain
            vLLM.
        env: environment variables of the engine for this configuration only.
        extra_args: further engine arguments for this configuration only.
        modules: what the engine's interpreter must be able to find.
        needs_gpu: why it cannot start without one; null where it can.
        min_cores: skipped on hosts with fewer; 0 means any.
        verify: how preflight tries it: serve (or true), short requests; long_prompt, the cache must be active
            as well; kv_consumer, with a dummy bootstrap beside it.
        verify_requests, verify_output_tokens: how many short requests preflight sends once the engine is
            warm, of how many output tokens each.
        verify_within_s: seconds in which all of them together must be answered.
        side_ports: ports beside the API's that must be free before a launch.
        ttft_is_no_tax: why its TTFT against plain's is none: it claims tokens of new prompts from a cache
            that it does not have, so their prefill is skipped, and its external cache hits are then expected;
            null where it is one.
        copies_kv: where it copies the KV of prompts that nobody fetches from there; its taxes hold that work.
            null where it copies none.
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
        id: file-name safe, unique.
        matches: for a matched baseline, the configuration whose engine settings plain vLLM is launched with.
    """

    id: ConnectorId
    matches: str | None = None


def is_connector(config: str) -> bool:
    """Launches of plain are none, whatever their settings."""
    return config not in ("plain", PLAIN_AGAIN) and not config.startswith(MATCHED)
