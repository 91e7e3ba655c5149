"""The application: which commands there are, and the one place where an error becomes one line and an exit code."""

from __future__ import annotations

import importlib
import os
import warnings
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import tersor
from tersor.cli.bench import bench
from tersor.cli.compare import compare
from tersor.cli.files import compress, decompress
from tersor.cli.info import codecs, doctor
from tersor.cli.inspect import inspect
from tersor.cli.paper import paper
from tersor.cli.recommend import recommend
from tersor.errors import TersorError

TRACEBACK = "TERSOR_TRACEBACK"


class Commands(TyperGroup):
    """A group whose commands fail with one line on stderr: exit code 2 for what the caller can mend."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Parse what stands before the command."""
        try:
            return super().make_context(*args, **kwargs)
        except Exception as error:
            if not hasattr(error, "format_message") or type(error).__name__ == "NoArgsIsHelpError":
                raise
            raise _fail("tersor", error) from None

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        with warnings.catch_warnings():
            warnings.showwarning = _note
            try:
                return super().invoke(ctx)
            except (typer.Exit, typer.Abort, BrokenPipeError):
                raise
            except Exception as error:
                known = isinstance(error, (TersorError, OSError, ValueError, ImportError, MemoryError))
                usage = hasattr(error, "format_message")
                if os.environ.get(TRACEBACK) or not (known or usage):
                    raise
                raise _fail(" ".join(filter(None, ("tersor", ctx.invoked_subcommand))), error) from None


def _fail(command: str, error: Exception) -> typer.Exit:
    if hasattr(error, "format_message"):
        text = f"{error.format_message().rstrip('.')}; see {command} --help"
    elif isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    else:
        text = str(error) or type(error).__name__
    typer.echo(f"{command}: {' '.join(text.split())}", err=True)
    return typer.Exit(2)


def _note(message: Warning | str, category: type[Warning], *args: Any, **kwargs: Any) -> None:
    if category is RuntimeWarning or category is UserWarning:
        typer.echo(f"tersor: {' '.join(str(message).split())}", err=True)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tersor {tersor.__version__}")
        raise typer.Exit()


def _no_train() -> None:
    """Race codecs to a target accuracy over a slow link (cannot be loaded here)."""
    importlib.import_module("tersor.cli.train")  # raises what is wrong, which becomes one line


def build() -> typer.Typer:
    """Put the commands together; importing this module must not import torch or matplotlib."""
    made = typer.Typer(
        cls=Commands,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
    )

    @made.callback()
    def tersor_(
        version: Annotated[
            bool,
            typer.Option("--version", metavar="", callback=_version, is_eager=True, help="Print the version and stop."),
        ] = False,
    ) -> None:
        """Terse tensors: float tensors at 0.5 to 8 bits a coordinate, with an error known before they are sent."""

    try:
        train = importlib.import_module("tersor.cli.train").train
    except ImportError:
        train = _no_train
    made.command("train")(train)
    for command in (compare, recommend, compress, decompress, inspect, paper, bench, codecs, doctor):
        made.command(command.__name__)(command)
    return made


app = build()
