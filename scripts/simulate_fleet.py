"""Many instances behind a gateway: queues, routers and loads of a study, with measured or given profiles. The same as ``connector-tax fleet``."""

from connector_tax.commands.fleet import COMMAND

if __name__ == "__main__":
    COMMAND.main()
