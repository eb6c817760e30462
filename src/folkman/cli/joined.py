"""Several kinds of project in one: a method and data of one's own, say, in one configuration.

Each template has an `experiment.toml`. A kind decides about its own tables, and about the rest the
first kind that was asked for.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import chain

__all__ = ["OWN_TABLES", "joined"]

OWN_TABLES = {
    "own_algorithm": ("algorithm",),
    "own_data": ("data", "partition"),
    "own_model": ("model",),
    "own_network": ("network",),
}
"""Kinds that can be joined, and the tables that each decides about."""
ORDER = ("data", "partition", "model", "network", "algorithm")


def joined(projects: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return the files of one project that is of all these kinds; kind -> its files by name."""
    files: dict[str, str] = {}
    for each in projects.values():
        files |= each
    files["experiment.toml"] = _configuration(
        {kind: each["experiment.toml"] for kind, each in projects.items()}
    )
    files["README.md"] = _readme([each["README.md"] for each in projects.values()])
    return files


def _configuration(texts: Mapping[str, str]) -> str:
    """Return one configuration: a head with the keys of all, then every table from its owner."""
    tables = {kind: _tables(text) for kind, text in texts.items()}
    keys: dict[str, str] = {"name": f'name = "{"-".join(texts).replace("_", "-")}"'}
    for each in tables.values():
        for line in each[""].splitlines():
            if found := re.match(r"(\w+) = ", line):
                keys.setdefault(found[1], line)
    first = next(iter(texts.values())).partition("\n")[0]
    head = [first, "# folkman run experiment.toml --out runs/first", "", *keys.values(), ""]
    chosen = []
    for table in ORDER:
        owners = [kind for kind in texts if table in OWN_TABLES[kind]]
        having = [kind for kind in (*owners, *texts) if table in tables[kind]]
        chosen += [tables[having[0]][table].rstrip()] if having else []
    return "\n".join(head) + "\n" + "\n\n".join(chosen) + "\n"


def _tables(text: str) -> dict[str, str]:
    """Return the text of each table with those inside it, and of what is before all as ''."""
    found: dict[str, str] = {}
    name = ""
    for block in re.split(r"(?m)^(?=\[)", text):
        name = named[1] if (named := re.match(r"\[+(\w+)", block)) else name
        found[name] = found.get(name, "") + block
    return found


def _readme(texts: Sequence[str]) -> str:
    """Return one README: what each kind says, and every command once."""
    parts = [re.split(r"```sh\n(.*?)```\n", text, maxsplit=1, flags=re.DOTALL) for text in texts]
    titles = [before.partition("\n")[0].removeprefix("# ").lower() for before, _, _ in parts]
    lines = dict.fromkeys(chain.from_iterable(block.splitlines() for _, block, _ in parts))
    told = [before.partition("\n")[2].strip() for before, _, _ in parts]
    after = [after.strip() for _, _, after in parts]
    commands = "```sh\n" + "\n".join(lines) + "\n```"
    title = "# A project with " + " and ".join(titles)
    return "\n\n".join(part for part in (title, *told, commands, *after) if part) + "\n"
