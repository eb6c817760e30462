"""The command line of devices: `folkman node`, `up`, `status`, `down`, `replay`."""

import json
import os
import sys
import time
import tomllib
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from folkman.cli.common import (
    FAILED,
    FAULTS,
    WRONG_INPUT,
    AsJson,
    ending_at_once,
    of_own_code,
    outcome,
    print_json,
    say,
    stream,
)
from folkman.record.json_file import Json

if TYPE_CHECKING:
    from folkman.runtime.assembly import Task
    from folkman.runtime.captured import Captured

__all__ = ["down", "node", "replay", "status", "up"]

Folder = Annotated[Path, typer.Argument(help="A cluster that `folkman up` made.")]


def node(
    config: Annotated[Path, typer.Option(help="The node's own TOML file.")],
    check: Annotated[
        bool, typer.Option("--check", help="Read and build everything, print what it is, and exit.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="With --check: print one JSON object.")
    ] = False,
) -> None:
    """Run one node until it is done or stopped by a signal.

    Logs are JSON lines on standard error; on a terminal, an error of the start is a sentence.
    """
    if check:
        _choose_arithmetic(config)
        from folkman.runtime.preview import preview, sentences

        found = preview(config)
        if as_json:
            print_json(found)
        else:
            print(sentences(found))
        return
    if as_json:
        raise ValueError("--json goes with --check; a node that runs logs JSON lines anyway")
    from folkman.runtime.captured import captured

    with captured() as output:
        code = _be_node(config, output)
    sys.stdout.flush()
    os._exit(code)  # compiled programs may still run in threads of their own


def _be_node(config: Path, output: "Captured | None") -> int:
    """Run a node and return its exit code; why it did not start is a line of its log."""
    try:
        _choose_arithmetic(config)
        from folkman.runtime.assembly import run_node

        return run_node(config, output)
    except FAULTS as error:
        if sys.stderr.isatty():  # a person reads it
            raise
        text, code = outcome(error)
    except Exception as error:  # a fault of ours or of own code; JSON has no bare traceback
        if sys.stderr.isatty():
            raise
        own = of_own_code(error)
        text, code = (own, WRONG_INPUT) if own else (traceback.format_exc(), 1)
    _log_not_started(config, text, output)
    return code


def _log_not_started(config: Path, text: str, output: "Captured | None") -> None:
    """Write a line of the log on why a node did not start."""
    from folkman.runtime.telemetry import Logger

    stream = output.log if output else None
    logger = Logger(config.resolve().parent.name, insecure=False, stream=stream)
    if output is not None:
        output.tell(logger)
    logger.say("not started", level="error", file=str(config), text=text)
    logger.flush(1.0)


def _choose_arithmetic(config: Path) -> None:
    """Let the node's file choose what it computes with, before anything that computes is imported.

    What is wrong with the file is said later, by whoever reads all of it. A small board has better
    use for memory than threads of NumPy's, and than a search for plug-ins of pydantic.
    """
    from folkman.arithmetic import choose

    try:
        asked = tomllib.loads(config.read_text(encoding="utf-8")).get("arithmetic", "auto")
    except (OSError, ValueError):
        asked = "auto"
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    if choose(asked).name == "numpy":
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def up(  # noqa: PLR0913, PLR0917 - the options, one by one
    config: Annotated[
        Path | None,
        typer.Argument(help="A TOML file as for `folkman run`; default its comparison."),
    ] = None,
    nodes: Annotated[
        int | None, typer.Option(help="Nodes; default as the configuration says.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Override a key. May be repeated.")
    ] = None,
    label: Annotated[
        str | None, typer.Option(help="Which of the algorithms; default the first.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Which of the seeds; default the first.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder to make; default runs/DATE-TIME-cluster.")
    ] = None,
    transport: Annotated[str, typer.Option(help="zenoh or tcp")] = "zenoh",
    radio: Annotated[
        str, typer.Option(help="emulated: the configuration's network; measured: the real links.")
    ] = "emulated",
    insecure: Annotated[
        bool, typer.Option("--insecure", help="No TLS, no signatures: anybody can join.")
    ] = False,
    node_settings: Annotated[
        list[str] | None,
        typer.Option("--node-set", help="A key of every node.toml: --node-set wire=float16."),
    ] = None,
    operator: Annotated[
        str | None,
        typer.Option(help="Name of an operator: writes fleet.toml for `folkman fleet`."),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until all nodes are done, then evaluate.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Start a local cluster of real processes from the configuration that `folkman run` takes."""
    say("preparing the nodes: data, first model, keys")  # what follows imports for seconds
    from folkman.config.comparison import resolve
    from folkman.config.text import override, read
    from folkman.record.json_file import dated
    from folkman.runtime.assembly import task_of
    from folkman.runtime.cluster import check_options, evaluate, make_cluster, start

    chosen = [*(settings or []), *([] if nodes is None else [f"nodes={nodes}"])]
    task = task_of(resolve(override(read(config) if config else {}, chosen)), label, seed)
    root = out or Path("runs") / dated("cluster")
    options: Json = {"transport": transport, "radio": radio, "insecure": insecure or None}
    options |= override({}, node_settings or [])
    if operator is not None:
        from folkman.runtime.operators import check_name

        check_name(operator)
        options["operator"] = {"listen": "127.0.0.1:0", **options.get("operator", {})}
    check_options(options, task.comparison.nodes)
    homes = make_cluster(root, task, options, operator=operator)
    _say_what_is_carried(homes[0], task)
    with ending_at_once(f"the nodes still run; stop them with: folkman down {root}"):
        for home in homes:
            start(home)
        say(f"{len(homes)} nodes in {root}; folkman status {root}, folkman down {root}")
        if wait:
            _wait(root)
        else:
            _complain_of_the_dead(root)
    answer: Json = {"folder": str(root), "nodes": len(homes)}
    if wait:
        answer |= evaluate(root)
        loss, accuracy = (_rounded(answer[key]) for key in ("train_loss", "test_accuracy"))
        print(f"train loss {loss}, test accuracy {accuracy}", file=stream(quiet=as_json))
    if as_json:
        print_json(answer)


def _rounded(value: float | None) -> str:
    """Return a measure for people; None is one that is not finite, as without test data."""
    return "none" if value is None else f"{value:.4f}"


def _complain_of_the_dead(root: Path) -> None:
    """Wait for the nodes to begin; fail if some have ended already, with what they logged last."""
    from folkman.record.cluster import WELL, ClusterFolder
    from folkman.runtime.cluster import await_start

    found = await_start(root)
    dead = [each for each in found if not each["alive"] and each["state"] not in WELL]
    if not dead:
        return
    lines = [f"{len(dead)} of {len(found)} nodes have ended already:"]
    for each in dead:
        log = ClusterFolder(root).node(each["node"]).log
        said = log.read_text(errors="replace").strip().splitlines() if log.is_file() else []
        lines.append(f"  {each['node']}: {_text_of(said[-1]) if said else 'nothing logged'}")
    raise RuntimeError("\n".join([*lines, f"stop the others with: folkman down {root}"]))


def _text_of(line: str) -> str:
    """Return what a line of a log says in words; all of it, where it has none."""
    try:
        found = json.loads(line)
    except ValueError:
        return line
    return str(found.get("text", line)) if isinstance(found, dict) else line


def _say_what_is_carried(home: Path, task: "Task") -> None:
    """Say what messages hold, where they are more than copies."""
    from folkman.record.cluster import NodeFolder
    from folkman.runtime.preview import carried_in_words, network_of, preview

    if network_of(task).get("message", "copy") == "copy":
        return
    found = preview(NodeFolder(home).config)
    if found["carries"] != "copy":
        say(f"messages: {carried_in_words(found)}")


def _wait(root: Path) -> None:
    """Wait until no node learns; complain of those who did not come to their end.

    Nodes that stay for an operator have come to it.
    """
    from folkman.record.cluster import DONE, ClusterFolder

    cluster = ClusterFolder(root)
    found = cluster.standing()
    while any(each["alive"] and not each.get("staying") for each in found):
        time.sleep(0.5)
        found = cluster.standing()
    early = [f"{each['node']} ({each['state']})" for each in found if each["state"] != DONE]
    if early:
        raise RuntimeError(f"{', '.join(early)} ended early; see nodes/*/node.log in {root}")


def status(root: Folder, as_json: AsJson = False) -> None:
    """Tell how each node of a cluster stands; the exit code is 0 if all are well, else 5."""
    from folkman.record.cluster import WELL, ClusterFolder

    found = ClusterFolder(root).standing()
    if as_json:
        print_json({"nodes": found})
    else:
        _show(found)
    if not all(each["state"] in WELL for each in found):
        raise typer.Exit(FAILED)


def _show(found: list[Json]) -> None:
    """Print a line for each node, and what its loss is."""
    for each in found:
        loss = "" if each.get("loss") is None else f"loss {each['loss']:.4f}"
        refused = sum(each.get("refused", {}).values())
        print(
            f"{each['node']:<10} {each['state']:<9} pid {each['pid'] or '-':<8} steps "
            f"{each.get('steps', 0):<7} "
            f"links {len(each.get('linked', [])):<3} refused {refused:<5} {loss}".rstrip()
        )
        if each.get("wrong"):
            print(f"{'':<10} {each['wrong']}")
    if any(each.get("loss") is not None for each in found):
        print("loss: training loss of a node's last gradient, on its own samples")


def down(root: Folder) -> None:
    """Stop the nodes of a cluster; they save their state and `folkman up` is not undone.

    The exit code is 0 if no node is left running, else 5.
    """
    from folkman.runtime import cluster as deploy

    found = deploy.down(root)
    for each in found:
        print(f"{each['node']:<10} {each['state']}")
    left = [each for each in found if each["left"]]
    for each in left:
        say(f"error: {each['node']} may still run: {each['left']}")
    if left:
        raise typer.Exit(FAILED)


def replay(root: Folder, as_json: AsJson = False) -> None:
    """Feed the timeline that the nodes recorded to the simulator, and compare the parameters."""
    from folkman.experiment.replay import replay as repeat

    found = repeat(root)
    worst = max(found["difference"].values())
    lines = [f"{name:<10} differs by {value:.2e}" for name, value in found["difference"].items()]
    lines.append(f"{found['slots']} slots replayed{_why_so_many(found)}")
    lines.append(f"largest relative difference {worst:.2e}")
    print("\n".join(lines), file=stream(quiet=as_json))
    if as_json:
        print_json(found)
    limit = found["tolerance"]
    if worst > limit:
        raise ValueError(
            f"the replay differs by {worst:.2e}, expected at most {limit:g}; is the folder whole?"
        )


def _why_so_many(found: Json) -> str:
    """Return why there are more slots in a replay than any node has lived; nothing if not so."""
    if found["slots"] == found["most_lived"]:
        return ""
    lived = f"; no node was awake in more than {found['most_lived']} of them"
    if found["radio"] == "emulated":
        return lived
    why = "nodes count their own slots, and a slot comes after those that formed its messages"
    return f"{lived}: {why}"
