"""Damaged run and sweep folders: every command says which file, and what to do."""

import json
import shlex
import shutil

import pytest

import shell
from folkman.checks import Notice
from folkman.record.provenance import note_start

LEAKS = ("Traceback", "codec can't", "NoneType", "Errno", "object has no attr")
FEW = (
    "--set slots=4 --set seeds=[0] --set model.name=softmax --set data.train_size=60 "
    "--set record_every=2"
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return a folder with a run and a sweep."""
    root = tmp_path_factory.mktemp("whole")
    with shell.undrawn():
        for line in (
            f"run {FEW} --out run",
            f"sweep --grid network.gamma=2,3 {FEW} --engine here --out sweep",
        ):
            assert shell.folkman(*shlex.split(line), cwd=root).returncode == 0
    (root / "x.csv").write_text("\n".join([",".join(["1"] * 64)] * 2))
    return root


HALF, NOTHING, JUNK, GONE = "half", b"", b"\x00\xff junk", None
MODEL = "run/models/algorithm-1-seed0.safetensors"
ROWS = [
    ("run/config.toml", HALF, "report run", "expected TOML in run/config.toml"),
    ("run/config.toml", HALF, "run --resume run", "restore the file"),
    ("run/config.toml", NOTHING, "compare run", "expected [[algorithm]] in run/config.toml"),
    ("run/config.toml", NOTHING, "theory bound run", "expected [[algorithm]] in run/config.toml"),
    ("run/config.toml", JUNK, "report run", "run/config.toml, it is damaged (byte 1); restore"),
    ("run/config.toml", JUNK, "plot run", "run/config.toml, it is damaged (byte 1); restore"),
    ("run/config.toml", JUNK, "run --resume run", "it is damaged (byte 1); restore the file"),
    ("run/config.toml", JUNK, "predict run --data x.csv", "it is damaged (byte 1); restore the"),
    ("run/config.toml", JUNK, "export run --to onnx --out m.onnx", "it is damaged (byte 1)"),
    ("run/config.toml", GONE, "report run", "run is neither; check the path"),
    ("run/config.toml", GONE, "run --resume run", "expected a run folder with a config.toml"),
    ("run/provenance.json", b'{"format": 9}', "report run", "upgrade folkman to read it"),
    ("run/metrics.parquet", HALF, "compare run", "is damaged: Parquet"),
    ("run/metrics.parquet", NOTHING, "plot run", "run its configuration again"),
    ("run/metrics.parquet", JUNK, "theory bound run", "run its configuration again"),
    ("run/summary.json", HALF, "compare run", "it is damaged; write it again: folkman run --res"),
    ("run/summary.json", b"[]", "plot run", "it is damaged; write it again: folkman run --resume"),
    ("run/summary.json", b'{"format": 9}', "compare run", "upgrade folkman to read it"),
    ("sweep/index.json", HALF, "compare sweep", "make it: folkman sweep --resume sweep"),
    ("sweep/index.json", b"[]", "plot sweep", "make it: folkman sweep --resume sweep"),
    ("sweep/sweep.toml", JUNK, "report sweep", "sweep/sweep.toml, it is damaged (byte 1)"),
    ("sweep/sweep.toml", JUNK, "sweep --resume sweep", "expected TOML in sweep/sweep.toml"),
    ("sweep/sweep.toml", b"x = ", "compare sweep", "expected TOML in sweep/sweep.toml"),
    ("sweep/sweep.toml", NOTHING, "sweep --resume sweep", "it is empty; restore the file"),
    ("sweep/results.parquet", JUNK, "report sweep", "is damaged: Parquet"),
    (MODEL, HALF, "predict run --data x.csv", MODEL),
    (MODEL, NOTHING, "export run --to onnx --out m.onnx", MODEL),
    (MODEL, JUNK, "predict run --data x.csv", MODEL),
    (MODEL, GONE, "predict run --data x.csv", MODEL),
]


@pytest.mark.parametrize(("name", "content", "line", "complaint"), ROWS)
def test_a_damaged_file_is_named_with_what_to_do(name, content, line, complaint, whole, tmp_path):
    shutil.copytree(whole, tmp_path / "here")
    file = tmp_path / "here" / name
    if content is GONE:
        file.unlink()
    else:
        text = file.read_bytes()
        file.write_bytes(text[: len(text) // 2 - 3] if content == HALF else content)

    with shell.undrawn():
        done = shell.folkman(*shlex.split(line), cwd=tmp_path / "here")

    told = " ".join(done.stderr.split())
    assert done.returncode == 2, (done.stdout, told)
    assert complaint in told
    assert not any(leak in told for leak in LEAKS), told


def test_a_summary_that_is_damaged_is_written_again(whole, tmp_path):
    """What it says of verdicts is in the parts, too."""
    shutil.copytree(whole, tmp_path / "here")
    summary = tmp_path / "here/run/summary.json"
    before = summary.read_text()
    summary.write_text(before[:100])
    with shell.undrawn():
        done = shell.folkman("run", "--resume", "run", cwd=tmp_path / "here")
    assert done.returncode == 0
    assert summary.read_text() == before


def test_a_damaged_provenance_is_kept_and_said(tmp_path):
    """A run that is resumed would else write over what is left of it."""
    path = tmp_path / "provenance.json"
    path.write_text('{"command": ["run"], "started')

    with pytest.warns(Notice, match=r"is damaged; it is kept as provenance\.damaged"):
        note_start(path, ["run", "--resume"])

    assert (tmp_path / "provenance.damaged").read_text() == '{"command": ["run"], "started'
    assert json.loads(path.read_text())["command"] == ["run", "--resume"]

    path.write_text("again")
    with pytest.warns(Notice, match=r"kept as provenance\.damaged1"):
        note_start(path, ["run", "--resume"])
    assert (tmp_path / "provenance.damaged").read_text() == '{"command": ["run"], "started'
