"""How a script ends: a person's mistake is one message and status 2, a bug keeps its traceback."""

import sys
from collections.abc import Callable

from connector_tax.errors import ConnectorTaxError


def run_door(main: Callable[[], None]) -> None:
    """Run a script's ``main`` and exit."""
    try:
        main()
    except ConnectorTaxError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("interrupted; finished cells are kept", file=sys.stderr)
        sys.exit(130)
