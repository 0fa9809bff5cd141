"""JSON Schema of ``history.json``, made from its types."""

from connector_tax.base.documents.aggregate.schema import Schema, parts_of
from connector_tax.base.documents.history import SCHEMA_VERSION, History


def history_schema() -> Schema:
    """As ``workflow/schemas/history.schema.json`` has it."""
    parts = parts_of((History,))
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:connector-tax:history:{SCHEMA_VERSION}",
        "title": "connector-tax history",
        "description": "history.json of connector-tax track: taxes of many campaigns over time. What is meant by each: docs/track.md.",
    }
    return {**head, **parts.pop("History"), "$defs": parts}
