"""List the files of a campaign with their checksums. The same as ``connector-tax manifest``."""

from connector_tax.commands.manifest import COMMAND

if __name__ == "__main__":
    COMMAND.main()
