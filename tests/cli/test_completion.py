"""Completion in the shell: a real bash asks, folkman answers."""

import os
import shutil
import subprocess
import sys

import pytest

pytestmark = pytest.mark.process

ASK = """
eval "$(folkman --show-completion bash)"
ask() {
  COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _folkman_completion folkman; echo "${COMPREPLY[@]}"
}
ask folkman doc
ask folkman re
ask folkman export --al
ask folkman data f
ask folkman nothing
"""
ANSWERS = ["doctor", "report reproduce replay", "--algorithm", "fetch", ""]


@pytest.fixture
def environment(tmp_path):
    """Return an environment with the command as pip installs it, and a home of its own."""
    command = tmp_path / "folkman"
    command.write_text(f"#!{sys.executable}\nfrom folkman.cli import main\nmain()\n")
    command.chmod(0o755)
    own = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    own["_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION"] = "1"  # what starts it here is no shell
    return {**os.environ, **own}


def run(words, environment):
    return subprocess.run(
        words, env=environment, capture_output=True, text=True, check=True, timeout=120
    ).stdout


def test_a_bash_that_sources_the_script_completes_commands_and_options(environment):
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash")

    assert run([bash, "-c", ASK], environment).splitlines() == ANSWERS


def test_the_script_is_installed_for_every_new_shell(environment, tmp_path):
    said = run([tmp_path / "folkman", "--install-completion", "bash"], environment)

    assert "bash completion installed" in said
    assert "folkman" in (tmp_path / ".bashrc").read_text()
    assert "_folkman_completion" in next((tmp_path / ".bash_completions").iterdir()).read_text()
