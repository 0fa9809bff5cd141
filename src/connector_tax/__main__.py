"""``python -m connector_tax NAME``: the command where the package is not installed, as on a host that can
fetch nothing."""

from connector_tax.cli import main

if __name__ == "__main__":
    main()
