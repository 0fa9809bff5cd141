"""Simulate a campaign in virtual time: how long it would take, and how small a tax it would find. The same as ``connector-tax rehearse``."""

from connector_tax.commands.rehearse import COMMAND

if __name__ == "__main__":
    COMMAND.main()
