"""Write the folder of a cluster whose nodes are on machines or containers of their own.

    python plan.py FOLDER CONFIG HOST HOST ...

Each node gets its samples, its keys and its `node.toml`, which names the hosts of all. A folder
that is there already stays as it is.
"""

import sys
from pathlib import Path

from folkman.config.comparison import resolve
from folkman.config.text import read
from folkman.record.cluster import ClusterFolder
from folkman.runtime.assembly import task_of
from folkman.runtime.cluster import make_cluster


def main(folder: str, config: str, *hosts: str) -> None:
    """Write the folder, if it is not there."""
    root = Path(folder)
    if ClusterFolder(root).is_there():
        print(f"{root} is there and stays as it is")
        return
    task = task_of(resolve(read(config)))
    for home in make_cluster(root, task, {"radio": "measured"}, hosts=hosts):
        print(home)


if __name__ == "__main__":
    main(*sys.argv[1:])
