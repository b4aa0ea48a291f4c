"""The command `distributed-input-operator`, and `python -m distributed_input_operator`."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the operator; return its exit status. Exit with the remedy if it cannot be imported."""
    if sys.version_info < (3, 11):
        sys.exit("distributed-input-operator: needs Python 3.11 or later. Use it, or the image")
    try:
        from distributed_input_operator.main import main as run
    except ModuleNotFoundError as error:
        if str(error.name).startswith("distributed_input"):
            raise
        sys.exit(
            f"distributed-input-operator: the package of {error.name} is not installed. "
            "Run: pip install 'distributed-input-operator[controller]'"
        )
    return run()


if __name__ == "__main__":
    sys.exit(main())
