"""Draw Figures 1 to 9 of a campaign from its aggregate.json; says which were left out, and why. The same as ``connector-tax figures``."""

from connector_tax.commands.figures import COMMAND

if __name__ == "__main__":
    COMMAND.main()
