"""Write the JSON Schemas of workflow/schemas/ from types: aggregate.json and the hand-written YAML files."""

from typing import Any

from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.config.model import CampaignYaml
from connector_tax.base.documents.aggregate import Aggregate, MeasuredCell, NoSteps, Steps
from connector_tax.base.documents.fleet import Study
from connector_tax.base.documents.schema import schema_of, text_of
from connector_tax.base.entrypoint import run_entrypoint
from connector_tax.base.files import write_text_if_changed
from connector_tax.base.records.connector import ConnectorEntry, ConnectorId
from connector_tax.base.records.host import GpuProfile
from connector_tax.sweep import SweepYaml

READ: dict[str, Any] = {
    "config": CampaignYaml,
    "connectors": dict[ConnectorId, ConnectorEntry],
    "fleet": Study,
    "gpu": GpuProfile,
    "sweep": SweepYaml,
}


def main() -> None:
    aggregate = schema_of(Aggregate, MeasuredCell, Steps, NoSteps, written=True)
    for owner, key, names in (
        ("Aggregate", "cells", ("MeasuredCell", "Cell")),
        ("MeasuredCell", "step", ("Steps", "NoSteps")),
    ):
        either = {"anyOf": [{"$ref": f"#/$defs/{name}"} for name in names]}
        own = aggregate["$defs"][owner]["properties"]
        own[key] = {**own[key], "items": either} if key == "cells" else either
    for name, key, usable in (
        ("Cell", "usable", False),
        ("MeasuredCell", "usable", True),
        ("NoSteps", "available", False),
        ("Steps", "available", True),
    ):
        aggregate["$defs"][name]["properties"][key] = {"const": usable}
    del aggregate["$defs"]["StepRecords"]  # their common base
    schemas = {name: schema_of(kind, written=False) for name, kind in READ.items()}
    for name, schema in {"aggregate": aggregate, **schemas}.items():
        path = PROJECT_ROOT / "workflow" / "schemas" / f"{name}.schema.json"
        if write_text_if_changed(path, text_of(schema)):
            print(f"wrote {path}")


if __name__ == "__main__":
    run_entrypoint(main)
