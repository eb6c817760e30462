"""The command line of methods: `folkman algorithms`, `graphs`, `cite`."""

from typing import Annotated

import typer

from folkman.cli.common import AsJson, print_json

__all__ = ["algorithms", "cite", "graphs"]


def algorithms(as_json: AsJson = False) -> None:
    """List the methods: paper, role, what they assume, and the bits of a message."""
    from folkman.experiment.methods import methods
    from folkman.report.methods import print_methods

    found = methods()
    if as_json:
        print_json({"algorithms": found})
    else:
        print_methods(found)


def graphs(as_json: AsJson = False) -> None:
    """List the graphs that methods between peers mix on: the values of `topology`."""
    from folkman.algorithm.pieces.topology import GRAPHS
    from folkman.report.methods import print_graphs

    found = [{"name": name, **kind._asdict()} for name, kind in GRAPHS.items()]
    if as_json:
        print_json({"graphs": found})
    else:
        print_graphs(found)


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
