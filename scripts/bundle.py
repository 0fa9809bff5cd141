"""One archive of a campaign for a reviewer. The same as ``connector-tax bundle``."""

from connector_tax.commands.bundle import COMMAND

if __name__ == "__main__":
    COMMAND.main()
