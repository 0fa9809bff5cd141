"""The campaign as a list of what to do: a pure function of the config."""

from connector_tax.base.plan.cells import (
    campaign_document,
    cells_of,
    config_of,
    document_hash,
    launch_hash,
    launch_spec,
    outputs_hash,
    read_campaign_file,
    run_order,
    spec_hash,
    until_overload,
)
from connector_tax.base.plan.gpu_slots import (
    SIDE_BY_SIDE,
    Turn,
    phases_before,
    priority_of,
    schedule,
    slot_of,
    wall_s,
)

__all__ = [
    "SIDE_BY_SIDE",
    "Turn",
    "campaign_document",
    "cells_of",
    "config_of",
    "document_hash",
    "launch_hash",
    "launch_spec",
    "run_order",
    "outputs_hash",
    "phases_before",
    "priority_of",
    "read_campaign_file",
    "schedule",
    "slot_of",
    "spec_hash",
    "until_overload",
    "wall_s",
]
