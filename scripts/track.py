"""Many campaigns in order of time, each compared with the one before it. The same as ``connector-tax track``."""

from connector_tax.commands.track import COMMAND

if __name__ == "__main__":
    COMMAND.main()
