"""Engine arguments and variables that only the pipeline may set.

The pipeline measures one engine, on 127.0.0.1 and a port of its choice, with one model and at most one
connector. A later argument on the command line would override that: vLLM would listen on the network, or
under another model name.
"""

from collections.abc import Iterable, Mapping

from connector_tax.base.config.model import EngineConfig, EngineYaml
from connector_tax.base.errors import ConfigError

_ADDRESS = "the engine listens on 127.0.0.1 alone, at engine.port"
_ONE_HOST = "a campaign measures one engine on one host, which listens at engine.port alone"
_CONNECTOR = "it is the connector's entry in the connectors file, and nothing for plain"
# Argument -> what sets it, or why nothing does. From `vllm serve`, 0.11 to 0.32.
RESERVED: dict[str, str] = {
    "host": _ADDRESS,
    "port": "set engine.port",
    "uds": _ADDRESS,
    "grpc": _ADDRESS,
    "grpc-port": _ADDRESS,
    "model": "set engine.model",
    "model-tag": "set engine.model",
    "served-model-name": "set engine.served_model_name",
    "kv-transfer-config": _CONNECTOR,
    # With these two vLLM makes a connector in place of the measured one.
    "kv-offloading-size": _CONNECTOR,
    "kv-offloading-backend": _CONNECTOR,
    "api-key": "set engine.args.api_key, which requests of ours know and no process list shows",
    "config": "what stands in a file is in no specification; write its settings into engine.args",
    "headless": _ONE_HOST,
    "nnodes": _ONE_HOST,
    "node-rank": _ONE_HOST,
    "master-addr": _ONE_HOST,
    "master-port": _ONE_HOST,
    "data-parallel-address": _ONE_HOST,
    "data-parallel-rpc-port": _ONE_HOST,
    "data-parallel-rank": _ONE_HOST,
    "data-parallel-start-rank": _ONE_HOST,
    "data-parallel-size-local": _ONE_HOST,
    "data-parallel-external-lb": _ONE_HOST,
    "data-parallel-hybrid-lb": _ONE_HOST,
    "data-parallel-multi-port-external-lb": _ONE_HOST,
    "data-parallel-supervisor-port": _ONE_HOST,
}
SHORT = {
    "-dpn": "data-parallel-rank",
    "-dpr": "data-parallel-start-rank",
    "-dpl": "data-parallel-size-local",
    "-dpa": "data-parallel-address",
    "-dpp": "data-parallel-rpc-port",
    "-dph": "data-parallel-hybrid-lb",
    "-dpe": "data-parallel-external-lb",
    "-dpm": "data-parallel-multi-port-external-lb",
    "-r": "node-rank",
    "-n": "nnodes",
}
# Full names that are a prefix of a reserved one; argparse takes any other prefix as an abbreviation.
WHOLE = frozenset({"data-parallel-size"})
# Set by each launch itself.
VARIABLES = frozenset({"AGENTIC_STEP_LOG_PATH", "CONNECTOR_TAX_RUN"})
# It would load another model than engine.model, from a file outside the specification.
REDIRECT = "VLLM_MODEL_REDIRECT_PATH"


def check_engine(engine: EngineYaml | EngineConfig, where: str) -> None:
    """Refuse an ``engine`` section that sets what the pipeline sets.

    Args:
        where: precedes ``engine`` in the message.

    Raises:
        ConfigError: names the first such argument and a remedy.
    """
    for name, argument in engine.args.items():
        if argument is not None and name != "api_key":
            _check(f"--{name}", f"{where}: engine.args.{name}")
    check_launch(engine.extra_args, engine.env, f"{where}: engine")


def check_launch(extra_args: Iterable[str], env: Mapping[str, str], where: str) -> None:
    """Do the same for ``extra_args`` and ``env`` of the engine or a connector.

    Raises:
        ConfigError: as above.
    """
    for index, argument in enumerate(extra_args):
        _check(argument, f"{where}.extra_args[{index}]")
    for name in env:
        if name == REDIRECT:
            raise ConfigError(
                f"{where}.env.{name}: vLLM would load another model, from a file that is in no specification."
                " Leave it out and set engine.model to the model that is meant."
            )
        if name in VARIABLES:
            raise ConfigError(
                f"{where}.env.{name}: the pipeline sets {name} itself for each launch, so this would be"
                " passed over. Leave it out."
            )


def _check(argument: str, place: str) -> None:
    meant = _reserved(argument)
    if meant is not None:
        raise ConfigError(
            f"{place}: {argument!r} would set --{meant}, which may not be set here: {RESERVED[meant]}. Leave"
            " it out."
        )


def _reserved(argument: str) -> str | None:
    """Return the reserved argument that vLLM may read ``argument`` as.

    It accepts underscores for hyphens, ``--name=value``, ``--name.key value`` for a part of a JSON argument,
    and any prefix of a name.
    """
    if not argument.startswith("--"):
        # argparse takes what follows a letter as its value, and int() accepts " 2", "+2", "1_0" and digits of
        # other scripts.
        return SHORT.get(argument.partition("=")[0].partition(".")[0]) or SHORT.get(argument[:2])
    name = argument[2:].partition("=")[0].partition(".")[0].replace("_", "-").rstrip("+")
    if name in RESERVED:
        return name
    if not name or name in WHOLE:
        return None
    return next((reserved for reserved in RESERVED if reserved.startswith(name)), None)
