"""A connector configuration: what is switched on, as data."""

from dataclasses import dataclass, field
from typing import Literal

from connector_tax.base.records.bounds import Foreign

# Plain's second launch in a block of repeats: what plain has against itself is the noise floor.
PLAIN_AGAIN = "plain_again"
# Before a configuration's id: plain with the settings that its engine resolves.
MATCHED = "plain_matched_"
# In an entry of connectors.yaml: the store folder of the launch at hand, empty when it begins; see ``run/engine/store.py``.
STORE = "${STORE}"
Verify = Literal["serve", "long_prompt", "kv_consumer"]


@dataclass(frozen=True, slots=True)
class ModuleNeed:
    """A Python module that the *engine's* interpreter must find, and how to get it.

    Attributes:
        by_cuda: major version of the CUDA that the engine's torch is built for -> how to get it there, where that differs.
    """

    module: str
    install: str
    by_cuda: dict[str, str] = field(default_factory=dict)

    def install_for(self, cuda: str | None) -> str:
        """The command for this CUDA, ``13.0`` for instance; None: a build without."""
        return self.by_cuda.get((cuda or "").partition(".")[0], self.install)


@dataclass(frozen=True, slots=True)
class SidePort:
    """A port that a connector uses beside the API's.

    Attributes:
        env: the variable that sets it; ``port`` is vLLM's default.
        used_by: what wants it, for messages.
        per: ``engine``: one port; ``rank``: one more for each tensor- and data-parallel rank, counted on from it.
        listens: false where the engine only connects to it, and preflight starts what listens there.
    """

    env: str
    port: int
    used_by: str
    per: Literal["engine", "rank"] = "engine"
    listens: bool = True


@dataclass(frozen=True, slots=True)
class ConnectorSpec:
    """One configuration of the campaign.

    Attributes:
        id: file-name safe, unique.
        kv_transfer_config: vLLM's ``--kv-transfer-config``; None is plain vLLM.
        env: environment variables of the engine for this configuration only.
        extra_args: further engine arguments for this configuration only.
        modules: what the engine's interpreter must be able to find.
        needs_gpu: the connector cannot start without one; the sentence says why.
        min_cores: skipped on hosts with fewer; 0 means any.
        verify: how preflight tries it (see ``run/measure/preflight.py``).
        verify_requests, verify_output_tokens, verify_within_s: how many short requests preflight sends once the engine is
            warm, of how many output tokens each, and the seconds in which all of them together must be answered.
        side_ports: ports that must be free before a launch.
        ttft_is_no_tax: why its TTFT against plain's is none: it claims tokens of new prompts from a cache that it does not have.
        copies_kv: where it copies the KV of prompts that nobody fetches from there; its taxes hold that work.
        matches: for a matched baseline, the configuration whose engine settings plain vLLM is launched with.
    """

    id: str
    label: str
    kv_transfer_config: Foreign | None
    env: dict[str, str] = field(default_factory=dict)
    extra_args: tuple[str, ...] = ()
    modules: tuple[ModuleNeed, ...] = ()
    needs_gpu: str | None = None
    min_cores: int = 0
    verify: Verify = "serve"
    verify_requests: int = 5
    verify_output_tokens: int = 32
    verify_within_s: float = 30.0
    side_ports: tuple[SidePort, ...] = ()
    note: str = ""
    ttft_is_no_tax: str | None = None
    copies_kv: str | None = None
    matches: str | None = None


def is_connector(config: str) -> bool:
    """Launches of plain are none, whatever their settings."""
    return config not in ("plain", PLAIN_AGAIN) and not config.startswith(MATCHED)
