"""Print the taxes of an analysed campaign as a Markdown table, or put it into a page that has a place for it. The same as ``connector-tax tax-table``."""

from connector_tax.commands.tax_table import COMMAND

if __name__ == "__main__":
    COMMAND.main()
