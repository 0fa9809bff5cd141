"""What no schema can say of ``phase_d``: its levels and requests have to fit the engine and the client."""

from connector_tax.base.config.model import CampaignConfig
from connector_tax.base.errors import ConfigError
from connector_tax.base.records.bounds import Foreign
from connector_tax.base.units import token_count

# vLLM's own on GPUs, where engine.args does not say.
BLOCK_SIZE = 16


def check_phase_d(config: CampaignConfig, where: str) -> None:
    """Against what the config itself knows; how many blocks a card has room for is known once the engine runs.

    Raises:
        ConfigError: names key, value and remedy.
    """
    phase = config.phase_d
    if not phase.cached_tokens:
        return
    args, at = config.engine.args, f"{where}: phase_d"
    if args.get("enable_prefix_caching") is False:
        raise ConfigError(
            f"{at}.cached_tokens: engine.args.enable_prefix_caching is false, so nothing stays cached. "
            "Switch it on, or leave phase_d out."
        )
    most = max(phase.running)
    for name, limit in (
        ("cell.inflight_cap", config.cell.inflight_cap),
        ("engine.args.max_num_seqs", token_count(args.get("max_num_seqs"))),
    ):
        if limit is not None and most > limit:
            raise ConfigError(
                f"{at}.running: {most} requests cannot run at once with {name}: {limit}. Raise it, or ask for fewer."
            )
    longest, limit = phase.input_tokens + phase.output_tokens, token_count(args.get("max_model_len"))
    if limit is not None and longest > limit:
        raise ConfigError(
            f"{at}: a request of {longest} tokens (prompt and output) is longer than engine.args.max_model_len ({limit}). "
            "Raise it, or shorten input_tokens or output_tokens."
        )
    shortest_s = phase.warmup_s + phase.duration_s
    if config.cell.max_cell_s < shortest_s:
        raise ConfigError(
            f"{at}: warm-up plus window take {shortest_s:g} s, cell.max_cell_s is {config.cell.max_cell_s:g} s; no cell could "
            "ever finish."
        )
    blocks = _count(args, "num_gpu_blocks_override", where)
    room = None if blocks is None else blocks * (_count(args, "block_size", where) or BLOCK_SIZE)
    wanted = phase.cached_tokens[-1] + most * longest
    if room is not None and wanted > room:
        raise ConfigError(
            f"{at}.cached_tokens: {phase.cached_tokens[-1]} cached beside {most} running requests of {longest} tokens want "
            f"{wanted} tokens, and engine.args.num_gpu_blocks_override: {blocks} has room for {room}. Lower the highest level."
        )


def _count(args: Foreign, name: str, where: str) -> int | None:
    """
    Raises:
        ConfigError: it is no number.
    """
    try:
        return token_count(args.get(name))
    except ValueError as error:
        raise ConfigError(f"{where}: engine.args.{name}: {error}. Give a whole number.") from error
