"""`python -m convbench` is `convbench`."""

from __future__ import annotations

import gc


def main() -> None:
    """Run the command line, which exits the process."""
    gc.disable()  # what is loaded is no garbage
    from convbench.commands._app import main

    main()


if __name__ == "__main__":
    main()
