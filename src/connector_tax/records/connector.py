"""A connector configuration: what is switched on, as data."""

from dataclasses import dataclass, field
from typing import Any, Literal

# Plain's second launch in a block of repeats: what plain has against itself is the noise floor.
PLAIN_AGAIN = "plain_again"
# In an entry of connectors.yaml: the store folder of the launch at hand, empty when it begins; see ``engine/store.py``.
STORE = "${STORE}"
Verify = Literal["serve", "long_prompt", "kv_consumer"]


@dataclass(frozen=True, slots=True)
class ModuleNeed:
    """A Python module that the *engine's* interpreter must find, and how to get it."""

    module: str
    install: str


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
        verify: how preflight tries it (see ``engine/preflight.py``).
        verify_requests: how many short requests preflight sends.
        ttft_is_no_tax: why its TTFT against plain's is none: it claims tokens of new prompts from a cache that it does not have.
        copies_kv: where it copies the KV of prompts that nobody fetches from there; its taxes hold that work.
        matches: for a matched baseline, the configuration whose engine settings plain vLLM is launched with.
    """

    id: str
    label: str
    kv_transfer_config: dict[str, Any] | None
    env: dict[str, str] = field(default_factory=dict)
    extra_args: tuple[str, ...] = ()
    modules: tuple[ModuleNeed, ...] = ()
    needs_gpu: str | None = None
    min_cores: int = 0
    verify: Verify = "serve"
    verify_requests: int = 5
    note: str = ""
    ttft_is_no_tax: str | None = None
    copies_kv: str | None = None
    matches: str | None = None
