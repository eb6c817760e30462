"""The command line after learning: `folkman predict`, `export`."""

from pathlib import Path
from typing import Annotated

import typer

from folkman.cli.common import AsJson, print_json, print_paths, say

__all__ = ["export", "predict"]

Folder = Annotated[
    Path, typer.Argument(metavar="RUN", help="A run folder, or a cluster that `folkman up` made.")
]
Algorithm = Annotated[
    str | None, typer.Option(help="Label of the algorithm whose model to take; default the first.")
]
Seed = Annotated[int | None, typer.Option(help="Seed of the run; default the first.")]
Node = Annotated[
    int | None,
    typer.Option(help="Take the model of this node, from 0; default that of the whole network."),
]


def predict(
    run: Folder,
    data: Annotated[
        Path,
        typer.Option(
            help="Samples: .npz with x (and y) or .npy, prepared as in training; or .csv."
        ),
    ],
    algorithm: Algorithm = None,
    seed: Seed = None,
    node: Node = None,
    out: Annotated[
        Path | None, typer.Option(help="File to write (.csv, .json); default: print as CSV.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say what the last model of a run makes of samples: class and probability, or a number.

    Where the file has labels, the accuracy is told as well.
    """
    from folkman.deploy.predict import predict as predicted
    from folkman.deploy.samples import as_csv, read_samples, write_predictions
    from folkman.deploy.samples import as_json as told
    from folkman.deploy.trained import trained

    found = trained(run, algorithm=algorithm, seed=seed, node=node)
    samples = read_samples(data, found)
    answer = predicted(found, samples.x, samples.y)
    whole = told(answer, samples.y, found.title)
    if out is not None:
        write_predictions(out, answer, samples.y, found.title)
    if as_json:
        print_json({**whole, "file": str(out)} if out else whole)
    elif out is None:
        print(as_csv(answer, samples.y), end="")
    else:
        print(out)
    say(_line(whole))


def _line(whole: dict) -> str:
    """Return how good predictions are, in a line."""
    line = f"{whole['samples']} samples by {whole['model']}"
    if whole["accuracy"] is not None:
        line += f"; accuracy {whole['accuracy']:.4f}"
    if whole["mean_squared_error"] is not None:
        line += f"; mean squared error {whole['mean_squared_error']:.4g}"
    return line


def export(
    run: Folder,
    to: Annotated[str, typer.Option(help="onnx; or torch: a state_dict and a module for it.")],
    out: Annotated[
        Path | None, typer.Option(help="File to write; default model.onnx or model.pt.")
    ] = None,
    algorithm: Algorithm = None,
    seed: Seed = None,
    node: Node = None,
) -> None:
    """Write the last model of a run for other libraries: ONNX, or PyTorch."""
    from folkman.deploy.export import export as written

    print_paths(written(run, to, out, algorithm=algorithm, seed=seed, node=node), quiet=False)
