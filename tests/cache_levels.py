"""Phase D of a synthetic campaign: closed loops over a prefix cache that earlier cells filled."""

from collections.abc import Callable
from typing import Any

from builders import Campaign
from invented_server import Behaviour, cell_window, load_rate

from connector_tax.base.artifacts.layout import RUN_FILES
from connector_tax.base.files import write_text
from connector_tax.base.plan import cells_of
from connector_tax.base.units import NS_PER_S

Levels = Callable[[Behaviour, float, int], Behaviour]


def measure_levels(campaign: Campaign, connector: str, behave: Levels | None = None) -> None:
    """Write Phase D of one configuration.

    Args:
        behave: (usual behaviour, cached blocks at half of the cell, concurrency) -> behaviour in the cell.
    """
    usual, size = campaign.behaviours.get(connector, Behaviour()), 16
    computed = generated = 0
    for spec in cells_of(campaign.config, connector, "d"):
        assert spec.cached_tokens is not None and spec.concurrency is not None
        computed = max(computed, spec.cached_tokens)
        own = cell_window(campaign._now_ns, spec, usual)
        rate, tokens = load_rate(spec, usual), spec.input_tokens + spec.output_tokens
        whole = (tokens - 1) // size
        if behave is not None:
            middle_s = (own.window_start_ns + own.t_stop_ns - 2 * own.t0_ns) / 2 / NS_PER_S
            blocks = computed / size - generated / spec.output_tokens * (tokens / size - whole)
            blocks += rate * middle_s * whole
            campaign.behaviours[connector] = behave(usual, blocks, spec.concurrency)
        cache: dict[str, Any] = {
            "wanted_tokens": spec.cached_tokens,
            "computed_tokens": computed,
            "block_size": size,
        }
        cache |= {"kv_blocks": 1_000_000, "counters": {"generation_tokens": float(generated)}}
        campaign.cell(connector, spec, cache=cache)
        n = int(rate * (own.t_stop_ns - own.t0_ns) / NS_PER_S)
        computed, generated = computed + n * tokens, generated + n * spec.output_tokens
    campaign.behaviours[connector] = usual
    for name in RUN_FILES:
        write_text(campaign.run(connector, "d").path / name, "{}\n")
    campaign.receipt(connector, "d")
