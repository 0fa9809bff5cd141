"""Runs the command as ``python -m connector_tax NAME`` without an installation, as on an offline host."""

from connector_tax.cli import main

if __name__ == "__main__":
    main()
