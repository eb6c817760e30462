"""The command line of methods: `folkman algorithms`, `cite`."""

from typing import Annotated

import typer

from folkman.cli.common import AsJson, print_json

__all__ = ["algorithms", "cite"]


def algorithms(as_json: AsJson = False) -> None:
    """List the methods: paper, role, what they assume, and the bits of a message."""
    from folkman.experiment.methods import methods
    from folkman.report.methods import print_methods

    found = methods()
    if as_json:
        print_json({"algorithms": found})
    else:
        print_methods(found)


def cite(
    names: Annotated[
        list[str], typer.Argument(help="Methods, as `folkman algorithms` lists them.")
    ],
) -> None:
    """Print the BibTeX of the papers behind methods."""
    from folkman.checks import nearest
    from folkman.report.methods import bibtex

    known = bibtex()
    for name in names:
        if name not in known:
            raise ValueError(f"there is no method '{name}' with a paper; {nearest(name, known)}")
    print("\n\n".join(known[name] for name in dict.fromkeys(names)))
