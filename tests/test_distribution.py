"""What is shipped: the wheel and the sdist, their size and metadata, and the files of a release."""

import io
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
import yaml

import folkman
from folkman.config.vocabulary import VOCABULARY

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MOST_BYTES = 3e6


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Return the wheel and the sdist, built by the backend that pip would use."""
    builders = pytest.importorskip("hatchling.builders.wheel", reason="pip install hatchling")
    sources = pytest.importorskip("hatchling.builders.sdist")
    place = str(tmp_path_factory.mktemp("dist"))
    made = [
        next(iter(builder(str(ROOT)).build(directory=place, versions=["standard"])))
        for builder in (builders.WheelBuilder, sources.SdistBuilder)
    ]
    return [Path(each) for each in made]


def metadata(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [each for each in archive.namelist() if each.endswith(".dist-info/METADATA")]
        return Parser().parse(io.TextIOWrapper(archive.open(name), encoding="utf-8"))


def test_both_are_small(built):
    for each in built:
        assert each.stat().st_size < MOST_BYTES, each.name


def test_the_wheel_has_everything_that_folkman_reads(built):
    with zipfile.ZipFile(built[0]) as archive:
        held = {name for name in archive.namelist() if name.startswith("folkman/")}
    source = ROOT / "src"
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "src"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.split()
    if not listed:
        pytest.skip("not a checkout")

    there = [ROOT / name for name in listed]
    assert held == {str(path.relative_to(source)) for path in there if path.is_file()}
    assert "folkman/cli/templates/plain/experiment.toml" in held
    assert "folkman/py.typed" in held


@pytest.mark.process
def test_help_of_what_was_installed_says_what_parameters_mean(built, tmp_path):
    """From the files of the wheel: the meanings stand in the sources, which it has."""
    with zipfile.ZipFile(built[0]) as archive:
        archive.extractall(tmp_path)  # noqa: S202 - our own
    said = "import folkman; print(folkman.__file__); help(folkman.fedavg)"
    done = subprocess.run(
        [sys.executable, "-c", said],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "PAGER": "cat"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith(str(tmp_path))
    assert "  local_steps: int = 1\n" in done.stdout
    assert VOCABULARY["local_steps"] in done.stdout


def test_the_sdist_has_what_builds_the_wheel_and_leaves_results_out(built):
    with tarfile.open(built[1]) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}

    needed = {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff"}
    needed |= {"packaging/pypi_readme.py", "src/folkman/__init__.py", "docs/index.md"}
    assert needed <= held
    for left_out in ("docs/data/", "docs/figures/", "benchmarks/", "tests/", ".venv"):
        assert not [name for name in held if name.startswith(left_out)], left_out


def test_the_metadata_say_what_it_is(built):
    found = metadata(built[0])

    assert found["Name"] == "folkman"
    assert found["Version"] == folkman.__version__ == PROJECT["version"]
    assert found["Author"] == "The folkman developers"
    assert found["License-Expression"] == "Apache-2.0"
    assert found["Requires-Python"] == ">=3.11"
    assert found.get_all("Project-URL") == [f"Paper, {PROJECT['urls']['Paper']}"]
    versions = {f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13)}
    assert versions <= set(found.get_all("Classifier") or [])


def test_no_package_is_pinned_to_one_version():
    extras = PROJECT["optional-dependencies"].values()
    every = [*PROJECT["dependencies"], *(each for listed in extras for each in listed)]

    assert [each for each in every if "==" in each] == []
    assert len(every) > 30


def test_the_readme_renders_on_an_index_and_points_at_nothing_that_is_not_there(built):
    renderer = pytest.importorskip("readme_renderer.markdown", reason="pip install readme_renderer")
    found = metadata(built[0])
    text = found.get_payload()

    page = renderer.render(text)
    assert found["Description-Content-Type"] == "text/markdown"
    assert page is not None
    assert "<img" not in page
    assert "docs/figures" not in text
    targets = re.findall(r'href="([^"]+)"', page)
    assert len(targets) > 5
    assert [each for each in targets if not each.startswith(("http://", "https://", "#"))] == []
    assert "Fresh air: young copies" in text
    assert "pip install" in text


def test_figures_and_links_of_the_repository_are_left_out_and_code_is_not():
    name = "pypi_readme"
    text = (ROOT / "packaging" / f"{name}.py").read_text()
    names: dict = {"__name__": name}
    exec(compile(text, name, "exec"), names)  # noqa: S102 - a file of this repository
    given = (
        "A [page](docs/a.md#b) and [site](https://x.y/z).\n\n![f](docs/f.png)\n\n"
        "```toml\n[a](b)\n```\n![kept](https://x.y/f.png)\n"
    )

    assert names["for_an_index"](given) == (
        "A page and [site](https://x.y/z).\n\n```toml\n[a](b)\n```\n![kept](https://x.y/f.png)\n"
    )


def test_versions_agree_and_the_changelog_has_them():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    changelog = (ROOT / "CHANGELOG.md").read_text()
    sections = re.findall(r"^## (.+)$", changelog, re.MULTILINE)

    assert citation["version"] == PROJECT["version"]
    assert sections[0] == "Unreleased"
    assert sections[1] == f"{PROJECT['version']} - {citation['date-released']}"
    assert all(re.fullmatch(r"\d+\.\d+\.\d+ - \d{4}-\d\d-\d\d", each) for each in sections[1:])


def test_the_citation_has_what_its_format_asks_for():
    """The keys that the Citation File Format 1.2.0 needs, and people or entities as authors."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())

    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert citation["cff-version"] == "1.2.0"
    for work in (citation, *citation["references"]):
        for author in work["authors"]:
            assert set(author) in ({"name"}, {"family-names", "given-names"})


def test_metadata_citation_and_readme_name_one_address_of_the_paper():
    (paper,) = yaml.safe_load((ROOT / "CITATION.cff").read_text())["references"]
    linked = re.search(r"^\[paper\]: (\S+)$", (ROOT / "README.md").read_text(), re.MULTILINE)

    assert linked is not None
    assert paper["url"] == linked[1] == PROJECT["urls"]["Paper"]
    (number,) = [each["value"] for each in paper["identifiers"]]
    assert paper["url"].endswith(number.removeprefix("arXiv:"))


@pytest.mark.process
@pytest.mark.slow
def test_the_sdist_builds_the_same_wheel(built, tmp_path):
    with tarfile.open(built[1]) as archive:
        archive.extractall(tmp_path, filter="data")
    (root,) = tmp_path.iterdir()
    code = (
        "import sys; from hatchling.builders.wheel import WheelBuilder; "
        "print(next(iter(WheelBuilder('.').build(directory=sys.argv[1], versions=['standard']))))"
    )

    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "dist")],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )

    def content(path):
        with zipfile.ZipFile(path) as archive:
            return {name: archive.read(name) for name in archive.namelist()}

    assert content(done.stdout.strip()) == content(built[0])
