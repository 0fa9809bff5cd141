"""Many campaigns: taxes over time, and where one rose. The same as ``connector-tax track``."""

from connector_tax.commands.track import COMMAND

if __name__ == "__main__":
    COMMAND.main()
