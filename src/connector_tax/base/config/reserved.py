"""Engine arguments and variables that a campaign sets itself, so that nobody else may.

The pipeline asks one engine, on 127.0.0.1 and a port that it chose, for one model; with or without one
connector. An argument that says otherwise further along the command line would win, and vLLM would listen on
the network, or under a name nobody asks for.
"""

from collections.abc import Iterable, Mapping

from connector_tax.base.config.model import EngineConfig, EngineYaml
from connector_tax.base.errors import ConfigError

_ADDRESS = "the engine listens on 127.0.0.1 alone, at engine.port"
_ONE_HOST = "a campaign measures one engine on one host, which listens at engine.port alone"
_CONNECTOR = "it is the connector's entry in the connectors file, and nothing for plain"
# Name of the argument -> what sets it, or why nothing does. Read off `vllm serve`, 0.11 to 0.32.
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
    # vLLM makes a connector of these two, in the place of the one that is measured.
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
# Whole names that begin a reserved one; anything else that does is an abbreviation, which argparse takes.
WHOLE = frozenset({"data-parallel-size"})
# What each launch sets itself, whatever an entry says.
VARIABLES = frozenset({"AGENTIC_STEP_LOG_PATH", "CONNECTOR_TAX_RUN"})
# Another model than engine.model would be loaded, from a file that is in no specification.
REDIRECT = "VLLM_MODEL_REDIRECT_PATH"


def check_engine(engine: EngineYaml | EngineConfig, where: str) -> None:
    """Refuse an ``engine`` section that sets what the pipeline sets.

    Args:
        where: goes before ``engine`` in the message.

    Raises:
        ConfigError: names the first such argument and what would do.
    """
    for name, argument in engine.args.items():
        if argument is not None and name != "api_key":
            _check(f"--{name}", f"{where}: engine.args.{name}")
    check_launch(engine.extra_args, engine.env, f"{where}: engine")


def check_launch(extra_args: Iterable[str], env: Mapping[str, str], where: str) -> None:
    """The same of ``extra_args`` and ``env``, of the engine or of one connector.

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
    """The reserved argument that vLLM may read ``argument`` as.

    It takes underscores for hyphens, ``--name=value``, ``--name.key value`` for a part of a JSON argument,
    and any beginning of a name.
    """
    if not argument.startswith("--"):
        # argparse takes whatever follows a letter for its value, and int() takes " 2", "+2", "1_0" and other
        # scripts' digits.
        return SHORT.get(argument.partition("=")[0].partition(".")[0]) or SHORT.get(argument[:2])
    name = argument[2:].partition("=")[0].partition(".")[0].replace("_", "-").rstrip("+")
    if name in RESERVED:
        return name
    if not name or name in WHOLE:
        return None
    return next((reserved for reserved in RESERVED if reserved.startswith(name)), None)
