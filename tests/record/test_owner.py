"""The owner of folders: outside `record/` nobody spells a file, a folder or a status of one."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import folkman
from folkman.record import cluster, folder, run, store
from folkman.record.cluster import ClusterFolder, NodeFolder
from folkman.record.folder import JobFolder
from folkman.record.store import SweepFolder

SOURCE = Path(folkman.__file__).parent
HERE = Path("anywhere")


def names_of(*owners: object) -> set[str]:
    """Return the names of all paths that owners hold."""
    return {
        value.name for owner in owners for value in vars(owner).values() if isinstance(value, Path)
    } - {HERE.name}


NAMES = names_of(JobFolder(HERE), SweepFolder(HERE), ClusterFolder(HERE), NodeFolder(HERE)) | {
    store.MARK
}
FOLDERS = {"parts", "figures", "models", "timelines", "network", "live", "nodes", "certs"}
FILES = {name for name in NAMES if "." in name}
STATUSES = {
    run.WAITING,
    run.RUNNING,
    run.STOPPED,
    run.FINISHED,
    run.DIVERGED,
    run.FAILED,
    store.BUSY,
    store.DISK,
}
STATUSES |= {cluster.STARTING, cluster.LEARNING, cluster.DONE, cluster.SILENT, cluster.GONE}
STATUSES |= {folder.UNFINISHED, folder.DAMAGED}

OTHER_MEANINGS = {
    ("cli/paper.py", "stopped"): "a key of the JSON that `folkman reproduce` prints",
    ("cli/common.py", "starting"): "a word on the progress bar",
    ("cli/fleet.py", "stopped"): "a key of the JSON that `folkman fleet stop` prints",
    ("dash/run.py", "done"): "a key of the page's JSON: slots done",
    ("engine/checkpoint.py", "busy"): "a count of the engine's carry",
    ("experiment/engines/dask.py", "finished"): "the status of a future of dask",
    ("radio/replay.py", "waiting"): "a field of a recording: payloads still to be held",
    ("report/sweep_page.py", "finished"): "a key of provenance: when it ended",
    ("runtime/causal.py", "finished"): "a column of a timeline",
    ("runtime/core/life.py", "damaged"): "an event of the log",
    ("runtime/core/saving.py", "disk"): "a reason in the log",
    ("runtime/drive.py", "disk"): "a reason in the log",
    ("runtime/fleet/operator_door.py", "busy"): "a reason of a refusal",
    ("runtime/fleet/operator_door.py", "disk"): "a reason of a refusal",
}
"""(file, word) -> what a word that is also a status means there."""


def spelt(tree: ast.AST) -> set[str]:
    """Return the names of files, folders and statuses that a module spells; docstrings and
    sentences do not count."""
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
            last = node.value.rstrip("\"'>").rpartition("/")[2]
            found |= {last} & FILES if " " not in node.value else set()
            found |= {node.value} & STATUSES
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            named = [each.value for each in ast.walk(node.right) if isinstance(each, ast.Constant)]
            found |= {str(name) for name in named} & (NAMES | FOLDERS)
    return found


def test_nobody_else_spells_a_path_or_a_status_of_a_folder():
    breaches = []
    for path in sorted(SOURCE.rglob("*.py")):
        place = path.relative_to(SOURCE).as_posix()
        if not place.startswith(("record/", "bench/")):  # the bench has no folders of runs
            known = {word for file, word in OTHER_MEANINGS if file == place}
            breaches += [
                f"{place}: '{name}'" for name in sorted(spelt(ast.parse(path.read_text())) - known)
            ]

    assert not breaches, "take these from folkman.record"


def test_every_exception_is_still_needed():
    for place, word in OTHER_MEANINGS:
        assert word in spelt(ast.parse((SOURCE / place).read_text())), (
            f"{place} no longer says '{word}'"
        )


@pytest.mark.parametrize(
    "code",
    [
        "p = root / 'live' / 'x'",
        "p = f'{root}/job.json'",
        "done = run.status == 'diverged'",
        "p = root / 'pid'",
    ],
)
def test_a_breach_is_seen(code):
    assert spelt(ast.parse(code))


def test_words_of_people_and_of_configurations_are_none():
    assert not spelt(
        ast.parse(
            '"""job.json"""\nsay("see report.html there")\ntable = {"network": 1, "nodes": 2}'
        )
    )


@pytest.mark.process
def test_records_are_imported_without_pyarrow_and_a_worker_sets_up_its_threads_before_numpy():
    """A device node installs no pyarrow; NumPy reads the number of threads when it is imported."""
    rooms = (
        "run",
        "json_file",
        "folder",
        "cluster",
        "live",
        "scene",
        "store",
        "sweep",
        "provenance",
    )
    code = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "import folkman.experiment.jobs\nassert not {'numpy', 'jax'} & set(sys.modules)\n"
        + "".join(f"import folkman.record.{name}\n" for name in rooms)
        + "assert 'jax' not in sys.modules"
    )

    subprocess.run([sys.executable, "-c", code], check=True)
