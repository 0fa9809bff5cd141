"""The check as small campaigns, one per way of scheduling: what the pipeline measures, it measures here as well."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.config import CampaignConfig, parse_campaign
from connector_tax.base.files import write_json, write_text
from connector_tax.base.plan import campaign_document
from connector_tax.base.records.connector import PLAIN_AGAIN
from connector_tax.base.records.gpu import StepCosts
from connector_tax.check.request import ASYNC, ENVIRONMENT, SYNC, CheckRequest, longest_model_len
from connector_tax.run.engine.virtual_gpu import step_costs

# What engine and client get done on a core beside each other; more would measure the host. A device that is faster gets less of its load.
TOKENS_PER_CORE_S = 700.0
WARMUP_S = 1.0
# Phase D, for slopes: requests four times as long, few and many of them, in a cache that holds what the loads left and in a fuller one.
GROWTH = {
    "cached_tokens": [0, 300_000],
    "running": [2, 12],
    "warmup_s": 1,
    "duration_s": 2,
    "min_completed": 6,
}


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch of the check: of which configuration, in which phase of which mode's campaign.

    Attributes:
        then: a phase whose cells the same launch measures after its own.
    """

    mode: str
    folder: CampaignFolder
    config: str
    phase: str
    then: str | None = None


@dataclass(frozen=True, slots=True)
class Campaigns:
    """
    Attributes:
        folders: by mode.
        rates_per_s: the loads, lowest first.
        lowered: whether they are less than the shares that were asked for, since the host holds no more.
    """

    request: CheckRequest
    folders: dict[str, CampaignFolder]
    rates_per_s: tuple[float, ...]
    lowered: bool

    @property
    def deciding_over_blocks(self) -> tuple[float, float]:
        """The loads at which taxes over blocks are taken: the reference rates."""
        return self.rates_per_s[len(self.rates_per_s) // 2], self.rates_per_s[-1]

    def rounds(self) -> Iterator[tuple[Launch, Launch, Launch]]:
        """In the order in which they are made: launches that are up together, the connector's between two of plain."""
        own = self.request.connector_id
        for block in range(self.request.blocks):
            phase = "a" if block == 0 else f"r{block}"
            for mode, folder in self.folders.items():
                grows = block == 0 and self.request.growth and mode == next(iter(self.folders))
                yield (
                    Launch(mode, folder, "plain", phase),
                    Launch(mode, folder, own, phase, then="d" if grows else None),
                    Launch(mode, folder, PLAIN_AGAIN, phase),
                )


def write_campaigns(request: CheckRequest, root: Path) -> Campaigns:
    """``campaign.json`` and ``reference_rates.json`` of each mode below ``root``.

    Raises:
        ConfigError: the request is none that can be measured.
    """
    entries = {
        "plain": {"label": "plain vLLM", "kv_transfer_config": None},
        request.connector_id: request.entry,
    }
    connectors = root.absolute() / "connectors.yaml"
    write_text(connectors, yaml.safe_dump(entries, sort_keys=False))
    first = parse_campaign(campaign_yaml(request, request.modes[0], connectors, (1.0,)), "check")
    costs = step_costs(first.engine)
    assert costs is not None, "the engine's kind is virtual_gpu"
    rates, lowered = rates_for(request, costs, len(os.sched_getaffinity(0)))
    folders = {}
    for mode in request.modes:
        config = parse_campaign(campaign_yaml(request, mode, connectors, rates), "check")
        folders[mode] = write_campaign(config, root, rates)
    return Campaigns(request, folders, rates, lowered)


def rates_for(request: CheckRequest, costs: StepCosts, cores: int) -> tuple[tuple[float, ...], bool]:
    """A rate per second for each of ``load_shares``, and whether the host's limit made them lower.

    What a request costs the device beyond the steps' own base says how many it holds.
    """
    prompt, answer = request.input_tokens, request.output_tokens
    request_us = (
        prompt * costs.per_prefill_token_us
        + answer * costs.per_decode_seq_us
        + answer * (prompt + answer / 2) * costs.per_context_token_us
    )
    holds = 1e6 / request_us if request_us > 0 else float("inf")
    host = TOKENS_PER_CORE_S * cores / answer / max(request.load_shares)
    return tuple(float(f"{min(holds, host) * share:.2g}") for share in request.load_shares), host < holds


def campaign_yaml(
    request: CheckRequest, mode: str, connectors: Path, rates: tuple[float, ...]
) -> dict[str, Any]:
    args = {
        "max_model_len": longest_model_len(request.model),
        "max_num_batched_tokens": 8192,
        "enable_prefix_caching": True,
        **(request.args or {}),
        **({"async_scheduling": False} if mode == SYNC else {}),
    }
    shape = {"input_tokens": request.input_tokens, "output_tokens": request.output_tokens}
    return {
        "campaign": f"check-{mode}",
        "connectors_file": str(connectors),
        "connectors": ["plain", request.connector_id],
        "engine": {
            "kind": "virtual_gpu",
            "virtual_gpu": {
                "gpu": request.gpu,
                "operating_point": {
                    "decode_seqs": 8,
                    "context_tokens": request.input_tokens,
                    "prefill_tokens": request.input_tokens,
                },
            },
            "python": request.engine_python,
            "model": str(request.model),
            "served_model_name": "m",
            "args": args,
            "env": {**ENVIRONMENT, **(request.env or {})},
            "ready_timeout_s": 120,
            "stop_grace_s": 5,
        },
        "phase_a": {"rates_per_s": list(rates), **shape},
        "phase_b": {k: [v] for k, v in shape.items()},
        "phase_d": {
            **GROWTH,
            "input_tokens": 4 * request.input_tokens,
            "output_tokens": 2 * request.output_tokens,
        }
        if request.growth and mode == request.modes[0]
        else {},
        "repeats": max(1, request.blocks - 1),
        "cell": {
            "arrival": "fixed",
            "warmup_s": WARMUP_S,
            "duration_s": request.duration_s,
            "min_completed": 10,
            "max_cell_s": 4 * request.duration_s + 20,
            "drain_timeout_s": 20,
        },
        "accuracy": {"prompts": 0},
    }


def write_campaign(config: CampaignConfig, root: Path, rates: tuple[float, ...]) -> CampaignFolder:
    folder = CampaignFolder(root / config.campaign)
    now = datetime.now(UTC)
    document = campaign_document(config, date=f"{now:%Y-%m-%d}", created_utc=f"{now:%Y-%m-%dT%H:%M:%SZ}")
    write_json(folder.campaign_file, document)
    # Chosen, not found: blocks of launches and Phase D want them beside Phase A.
    write_json(
        folder.reference_rates,
        {
            "schema": 1,
            "ref_safe_per_s": rates[len(rates) // 2],
            "ref_load_per_s": rates[-1],
            "b_prime_needed": False,
            "flags": [],
            "participating": list(config.connector_ids),
            "saturation": {},
        },
    )
    return folder


def mode_words(mode: str) -> str:
    return "asynchronous" if mode == ASYNC else "synchronous"
