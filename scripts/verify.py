"""Say which files of a bundle were changed, and compute it anew. The same as ``connector-tax verify``."""

from connector_tax.commands.verify import COMMAND

if __name__ == "__main__":
    COMMAND.main()
