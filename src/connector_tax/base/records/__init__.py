"""What flows through the project: frozen values, no I/O. Field names carry unit and clock."""
