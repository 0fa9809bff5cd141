"""What is done, running, skipped and left of a campaign; reads files only. The same as ``connector-tax status``."""

from connector_tax.commands.status import COMMAND

if __name__ == "__main__":
    COMMAND.main()
