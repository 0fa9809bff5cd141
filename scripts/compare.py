"""Two campaigns: which taxes changed, and whether one rose too far. The same as ``connector-tax compare``."""

from connector_tax.commands.compare import COMMAND

if __name__ == "__main__":
    COMMAND.main()
