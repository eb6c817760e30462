"""The documentation runs: Python blocks are executed, configurations resolved, commands parsed,
links followed.

Commands are run in `test_docs_shell.py`; here also those that cannot be are parsed.
"""

import json
import re
import runpy
import shlex
import tomllib
from contextlib import nullcontext
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from shell import undrawn

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs").rglob("*.md"))
KNOWN = {"python", "toml", "sh", "json", "text", "bibtex"}


def blocks(path, language):
    """Return the blocks of a language, those within an item of a list too."""
    pattern = rf"^( *)```{language}\n(.*?)^\1```"
    found = re.findall(pattern, path.read_text(), re.DOTALL | re.MULTILINE)
    return [dedent(text) for _, text in found]


def having(language):
    return [
        pytest.param(p, id=str(p.relative_to(ROOT / "docs"))) for p in PAGES if blocks(p, language)
    ]


def write_files(page, folder):
    """Write the blocks of a page that begin with a comment that names a file: `# mine.py`,
    `# study.toml`."""
    for language in ("python", "toml"):
        for source in blocks(page, language):
            if name := re.match(r"# ([\w-]+\.(?:py|toml))\n", source):
                (folder / name[1]).write_text(source)


@pytest.mark.parametrize("page", having("python"))
def test_python_runs_from_top_to_bottom(page, tmp_path, monkeypatch):
    """Figures are built and stay empty, but on the page about them: tests/report draws them."""
    monkeypatch.chdir(tmp_path)
    names: dict = {"__name__": page.stem}

    with nullcontext() if page.name == "looking.md" else undrawn():
        for number, source in enumerate(blocks(page, "python")):
            exec(compile(source, f"{page.name}, block {number}", "exec", dont_inherit=True), names)  # noqa: S102


PAPER = "own-paper.md"
"""The page whose TOML is not of configurations, but of a paper."""


@pytest.mark.parametrize("page", [page for page in having("toml") if PAPER not in str(page.id)])
def test_configurations_resolve(page, tmp_path, monkeypatch):
    from folkman.config.comparison import resolve
    from folkman.experiment.plan import axes_of, plan

    monkeypatch.chdir(tmp_path)
    write_files(page, tmp_path)
    for source in blocks(page, "toml"):
        tables = tomllib.loads(source)
        if {"grid", "list", "arm"} & tables.keys():
            assert plan(tables, axes_of(tables)).jobs
        else:
            assert resolve(tables).slots >= 1


def test_the_page_on_papers_shows_what_the_example_has():
    """Every block is a part of one of the example's files: each table and each entry of a list."""

    def is_part(shown, whole):
        if isinstance(shown, dict):
            return isinstance(whole, dict) and all(
                k in whole and is_part(v, whole[k]) for k, v in shown.items()
            )
        if isinstance(shown, list) and shown and isinstance(shown[0], dict):
            return all(any(is_part(each, other) for other in whole) for each in shown)
        return shown == whole

    example = [
        tomllib.loads(p.read_text())
        for p in (ROOT / "examples" / "papers" / "digits-demo").glob("*.toml")
    ]
    shown = [
        tomllib.loads(source) for source in blocks(ROOT / "docs" / "tutorials" / PAPER, "toml")
    ]
    assert len(shown) == 3
    for tables in shown:
        assert any(is_part(tables, whole) for whole in example), tables


@pytest.mark.parametrize("page", [*having("sh"), pytest.param(ROOT / "README.md", id="README.md")])
def test_commands_exist_with_all_their_options(page):
    """Those of the README too, which `test_examples.py` runs as far as they take no minutes and
    need no others."""
    import typer.main

    from folkman.cli import app

    root = typer.main.get_command(app)
    for line in re.split(
        r"\n|&&", "\n".join(blocks(page, "sh") + blocks(page, "console")).replace("\\\n", " ")
    ):
        words = shlex.split(line.removeprefix("$ "), comments=True)
        if words[:1] == ["folkman"]:
            parse(root, words[1:], line)


def parse(command, words, line):
    """Parse a command line as the command would, without running it."""
    context = (
        command.make_context("folkman", list(words)) if not hasattr(command, "commands") else None
    )
    if context is None:
        assert words, line
        assert words[0] in command.commands, line
        parse(command.commands[words[0]], words[1:], line)


SAID = re.compile(r"`((?:folkman|python)\s[^`]+)`")
WORDS_OF_BYTES = ("folkman parameters 2", "folkman control 1", "folkman fresh air 3")
WORDS_OF_BYTES += ("folkman node 2",)
"""What the protocol signs or writes, which is no command."""


def said(page):
    """Return the commands that a page has in its sentences and in blocks of text, a line each."""
    text = re.sub(r"^( *)```.*?^\1```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    found = [" ".join(line.split()) for line in SAID.findall(text)]
    for block in blocks(page, "text"):
        lines = re.sub(r"(^|\s+)# .*$", "", block.replace("\\\n", " "), flags=re.MULTILINE)
        found += re.findall(r"^(?:folkman|python) .+$", lines, re.MULTILINE)
    return [line for line in found if line not in WORDS_OF_BYTES]


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
def test_what_is_said_of_commands_names_commands_and_options_that_are_there(page):
    """In sentences, tables and synopses, where a value may be a placeholder; and the scripts."""
    import typer.main

    from folkman.cli import app

    for line in said(page):
        kind, *words = line.replace("\\|", "|").split()
        options = re.findall(r"(?<![\w-])--[a-z][\w-]*", line)
        if kind == "python":
            source = "" if words[0] == "-c" else sources(words)
            assert all(f'"{option}"' in source for option in options if source), (page, line)
            continue
        command: Any = typer.main.get_command(app)
        while words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words.pop(0)]
        assert not words or not hasattr(command, "commands") or words[0].startswith("-"), line
        known = {name for each in command.params for name in [*each.opts, *each.secondary_opts]}
        assert set(options) <= known | {"--help"}, (page, line)


def sources(words):
    """Return the text of what `python FILE` or `python -m MODULE` runs, in the repository."""
    if words[0] != "-m":
        return (ROOT / words[0]).read_text()
    path = ROOT.joinpath(*words[1].split("."))
    if not path.is_dir():
        return path.with_suffix(".py").read_text()
    assert (path / "__main__.py").is_file()
    return "".join(each.read_text() for each in sorted(path.glob("*.py")))


def test_json_is_json():
    for page in PAGES:
        for source in blocks(page, "json"):
            json.loads(source)


def test_every_block_has_a_known_language():
    for page in PAGES:
        found = set(re.findall(r"^ *```(\w+)$", page.read_text(), re.MULTILINE))
        assert found <= KNOWN, page
        assert not re.search(
            r"^    (folkman|make|python) ",
            re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE),
            re.MULTILINE,
        ), f"{page}: a command outside a block of sh is not run"


def formulas(path):
    """Return the formulas of a page in LaTeX, as GitHub finds them: those set apart first."""
    text = re.sub(r"^( *)```.*?^\1```", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    apart = r"^(?:> ?)?\$\$\n(.*?)^(?:> ?)?\$\$$"
    found = re.findall(apart, text, re.DOTALL | re.MULTILINE)
    text = re.sub(r"`+[^`]*`+", "", re.sub(apart, "", text, flags=re.DOTALL | re.MULTILINE))
    return found + re.findall(r"\$([^$\s](?:[^$]*[^$\s])?)\$", text)


def test_every_formula_can_be_drawn_and_has_no_sign_that_markdown_takes():
    """GitHub reads Markdown before formulas: a backslash before a sign, and `|` in a table."""
    pytest.importorskip("latex2mathml", reason="pip install 'folkman[docs]'")
    as_mathml = runpy.run_path(str(ROOT / "docs" / "formulas.py"))["as_mathml"]
    number = 0
    for page in PAGES:
        for latex in formulas(page):
            number += 1
            assert as_mathml(latex.replace("\n> ", "\n")).startswith("<math"), (page, latex)
            assert not re.search(r"\\[^A-Za-z]|\|", latex), (page, latex)
    assert number > 1300


PLAIN = re.compile(
    r"""(?<![\w.])(?:
    (?:alpha|beta|eta|tau|kappa|rho|omega|Gamma|Delta|sum)_\w+  # alpha_i, Gamma_T, sum_j
    |[a-zA-Z]_(?:[ijk]{1,2}|\(m\)\w)(?![A-Za-z0-9_])  # w_i, x_ij
    |\d+\^\(?\w+|[a-zA-Z]\^\d  # 2^31, I^2
    |(?:ceil|sqrt)\(|log2\ \w|[≤≥≠²³√∑]
    )""",
    re.VERBOSE,
)
"""Mathematics as it is typed where there is no LaTeX."""
MADE = re.compile(r"<!-- begin (\S+) -->.*?<!-- end \1 -->", re.DOTALL)
"""What a program writes into a page."""


def prose_of(path):
    """Return the text of a page without code, formulas, addresses and what programs write."""
    text = re.sub(r"^( *)```.*?^\1```", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"`+[^`]*`+", "", MADE.sub("", text))
    text = re.sub(r"\$\$.*?\$\$|\$[^$]*\$", "", text, flags=re.DOTALL)
    return re.sub(r"\]\([^)]*\)", "]", text)


@pytest.mark.parametrize("page", [page for page in PAGES if "data" not in page.parts])
def test_mathematics_stands_in_formulas(page):
    assert PLAIN.findall(prose_of(page)) == []


@pytest.mark.parametrize("text", ["the F_i", "sum_j w_j", "O(I^2)", "at most 2^31 - 1", "x_ij²"])
def test_plain_mathematics_is_found(text, tmp_path):
    (tmp_path / "page.md").write_text(f"{text} and `{text}`, ${text}$")
    assert PLAIN.search(prose_of(tmp_path / "page.md"))
    (tmp_path / "page.md").write_text(f"`{text}`, ${text}$ and [a](b_i.md)")
    assert not PLAIN.search(prose_of(tmp_path / "page.md"))


def test_a_formula_becomes_mathml_and_an_unknown_command_is_an_error():
    pytest.importorskip("latex2mathml", reason="pip install 'folkman[docs]'")
    hook = runpy.run_path(str(ROOT / "docs" / "formulas.py"))
    drawn = hook["as_mathml"](r"\lVert w_i \rVert^2 \le \frac{a}{b}", apart=True)
    assert 'display="block"' in drawn
    assert drawn.count('stretchy="false"') == 2
    assert re.search(r"<msub><mi>w</mi><mi>i</mi></msub>", drawn)
    assert "<mfrac><mrow><mi>a</mi></mrow><mrow><mi>b</mi></mrow></mfrac>" in drawn
    with pytest.raises(ValueError, match=r"got \\nosuch in"):
        hook["as_mathml"](r"a \nosuch b")
    space = '<mspace width="0.167em"/>'
    assert f"<msub><mi>log</mi><mn>2</mn></msub>{space}<mi>d</mi>" in hook["as_mathml"](r"\log_2 d")
    assert f'rspace="0">max</mo>{space}<mi>c</mi>' in hook["as_mathml"](r"\max c")
    for tight in (r"\min(a, b)", r"2^{\log_2}", r"\log_2(1 + x)", r"a \bmod b", "w x", r"x_\max y"):
        assert space not in hook["as_mathml"](tight), tight
    page = '<p>If <span class="arithmatex">\\(a &lt; b\\)</span>.</p>'
    assert "arithmatex" not in hook["on_page_content"](page)
    assert "&#x0003C;" in hook["on_page_content"](page)


def test_every_figure_is_on_a_page_and_is_there():
    linked = set()
    for page in [*PAGES, ROOT / "README.md"]:
        for target in re.findall(r"\]\(([^)#\s]*figures/[^)\s]+)\)", page.read_text()):
            if "://" not in target:
                linked.add((page.parent / target).resolve())
    there = {path for path in (ROOT / "docs" / "figures").rglob("*") if path.is_file()}
    assert linked == there
