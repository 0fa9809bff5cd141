"""Frozen values that flow through the project, without I/O; field names carry unit and clock."""
