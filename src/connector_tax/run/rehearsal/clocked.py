"""The cost model of a campaign on a virtual GPU: connectors as in the file, steps as the GPU's clock has them."""

from pathlib import Path

import yaml
from msgspec.structs import asdict

from connector_tax.base.config import EngineConfig
from connector_tax.base.config.checked import read_yaml
from connector_tax.base.files import write_text
from connector_tax.run.engine.virtual_gpu import kv_blocks, step_costs


def clocked_model(engine: EngineConfig, base: Path, folder: Path) -> Path:
    """Write ``engine_model.yaml`` into ``folder``; steps of such a device take one time, so there is no jitter.

    Args:
        engine: of kind ``virtual_gpu``.
        base: the cost model that has the connectors, and what the host does.

    Raises:
        ConfigError: the step time cannot be worked out for this model; says what would do.
    """
    value = read_yaml(base)
    costs = step_costs(engine)
    assert costs is not None
    own = {**value["engine"], **asdict(costs), "jitter_cv": 0.0}
    own["kv_blocks"] = kv_blocks(engine, own["block_size"]) or own["kv_blocks"]
    own["max_num_seqs"] = int(engine.args.get("max_num_seqs") or own["max_num_seqs"])
    path = folder / "engine_model.yaml"
    write_text(path, yaml.safe_dump({**value, "engine": own}, sort_keys=False))
    return path
