"""The command line `tersor`: parse, call, print. Needs the extra `cli`."""

import sys

_NEEDED = ("typer", "rich")


def main() -> None:
    """Run the command line; what `tersor` starts."""
    try:
        from tersor.cli.app import app
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in _NEEDED:
            raise
        print(
            f"tersor: the command line needs {' and '.join(_NEEDED)}, and {error.name} is not installed: "
            "pip install 'tersor[cli]'",
            file=sys.stderr,
        )
        raise SystemExit(2) from None
    app(prog_name="tersor")
