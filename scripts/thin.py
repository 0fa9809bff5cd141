"""Make a finished campaign small enough to publish. The same as ``connector-tax thin``."""

from connector_tax.commands.thin import COMMAND

if __name__ == "__main__":
    COMMAND.main()
