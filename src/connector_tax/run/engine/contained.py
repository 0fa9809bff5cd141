"""One launch of an engine in a container: what it reads, writes and is told, from the campaign's config."""

import os
from collections.abc import Container, Iterable, Mapping
from pathlib import Path

from connector_tax.base.config import EngineConfig
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.errors import ConfigError
from connector_tax.base.records.connector import STORE, ConnectorSpec
from connector_tax.base.secrets import REFERENCE, format_in, is_secret_name, masked
from connector_tax.run.engine.command import engine_python, given_environment
from connector_tax.run.engine.container import (
    PATHS,
    Contained,
    further,
    home_of,
    instrument,
    model_mounts,
    of_the_client,
    passed_names,
)
from connector_tax.run.engine.gpus import Cards
from connector_tax.run.engine.image import Image
from connector_tax.run.engine.model_files import model_folder
from connector_tax.run.engine.store import folder_in


def contained(
    engine: EngineConfig,
    connector: ConnectorSpec,
    image: Image,
    environment: Mapping[str, str],
    *,
    mark: str,
    cards: Cards,
    cpus: tuple[int, ...],
    writes: tuple[Path, ...],
) -> Contained:
    """
    Args:
        connector: with its store's folder in place.
        environment: the launch's, of which the container gets a part.
        cpus: that the engine stays on; empty: those that this process may use, which a daemon's containers know nothing of.
        writes: where step records and a virtual GPU's clock go.

    Raises:
        ConfigError: a folder of ``engine.container.mounts`` or the model is not on this host.
        ArtifactError: there is no room for a home folder.
    """
    assert engine.container is not None
    home, store = home_of(image), folder_in(connector)
    own = os.sched_getaffinity(0)
    given = given_environment(engine, connector)
    secret = _secret(given, {**engine.env, **connector.env})
    return Contained(
        image=image,
        python=engine_python(engine),
        mark=mark,
        names=passed_names(environment, given),
        values={name: given[name] for name in of_the_client(given, secret)},
        secret=secret,
        reads=(*instrument(), *_of_engine(engine), *further(engine.container.mounts)),
        writes=(*(path.absolute() for path in writes), *([] if store is None else [store]), home),
        home=home,
        cards=cards,
        cpus=cpus or (() if len(own) == os.cpu_count() else tuple(sorted(own))),
        grace_s=engine.stop_grace_s,
    )


def _secret(given: Mapping[str, str], configured: Mapping[str, str]) -> frozenset[str]:
    """Names of variables that hold a secret, by their names, their values, or what they refer to.

    Args:
        given: with every value in place.
        configured: the same where a secret is still a reference to another variable: others were put in when the config was read.
    """
    return frozenset(
        name
        for name, value in given.items()
        if is_secret_name(name)
        or REFERENCE.search(configured.get(name, "").replace(STORE, ""))
        or ((format_in(value) or masked(value) != value) and not PATHS.fullmatch(name))
    )


def leave_to_the_client(
    environment: dict[str, str], given: Iterable[str], secret: Container[str] = ()
) -> None:
    """Take out of a launch's environment what the config sets for the engine and the runtime's client would go by: PATH, TMPDIR and the like.

    Args:
        given: names that the config sets.
        secret: those whose values are one, which the client has not anyway.
    """
    for name in [name for name in given if name == "PYTHONPATH" or of_the_client([name], secret)]:
        environment.pop(name)
        if name in os.environ:
            environment[name] = os.environ[name]


def model_inside(engine: EngineConfig) -> str:
    """What the engine's command names as its model: the folder itself, also of one in the hub's cache, under the path that is mounted.

    Raises:
        ConfigError: it is not on this host.
    """
    return str(_model(engine)) if engine.is_vllm else engine.model


def _of_engine(engine: EngineConfig) -> tuple[Path, ...]:
    if engine.is_vllm:
        return model_mounts(_model(engine))
    return (PROJECT_ROOT / str(engine.model_file),)


def _model(engine: EngineConfig) -> Path:
    folder = model_folder(engine)
    if folder is None:
        raise ConfigError(
            f"engine.model: {engine.model}: not on this host (no config.json), and an engine in a container downloads nothing. "
            "Bring it here first, or give a model directory."
        )
    return folder.resolve()
