"""Write the small samples in this folder: files in the formats of other projects, made up here.

`python tests/data/formats/make.py` writes them again, the same to the byte.
"""

import json
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
LINE = (
    "To tell a format by a small sample, write two lines that somebody might have said, "
    "and count. Then write another: nobody said this one before, so nobody owns it?"
)
SIGNALS = [f"{s}_{a}" for s in ("body_acc", "body_gyro", "total_acc") for a in "xyz"]


def leaf(users):
    """Return a file of LEAF as text: name -> (x, y)."""
    table = {
        "users": list(users),
        "num_samples": [len(y) for _, y in users.values()],
        "user_data": {name: {"x": x, "y": y} for name, (x, y) in users.items()},
    }
    return json.dumps(table, separators=(",", ":")) + "\n"


def femnist(rng):
    """Draw two writers, two images each to learn from, one to test on."""
    parts = {}
    for part, count in (("train", 2), ("test", 1)):
        users = {}
        for writer in ("f0000_14", "f0001_41"):
            images = rng.integers(0, 2, (count, 784)).tolist()
            users[writer] = (images, rng.integers(0, 62, count).tolist())
        parts[f"femnist/{part}/all_data_0.json"] = leaf(users)
    return parts


def shakespeare():
    """Return one file of two speakers: every sign of a line is told from the 80 before it."""
    users = {}
    for name, text in (("A_PLAY_FIRST", LINE), ("A_PLAY_SECOND", LINE[::-1].capitalize())):
        places = range(0, len(text) - 80, 8)
        users[name] = ([text[k : k + 80] for k in places], [text[k + 80] for k in places])
    return {"shakespeare/lines.json": leaf(users)}


def har(rng):
    """Draw windows of two persons to learn from and of another one to test on."""
    parts = {}
    for part, persons in (("train", (3, 3, 7, 7)), ("test", (5, 5))):
        tables = {f"X_{part}": rng.integers(-1, 2, (len(persons), 561))}
        tables |= {
            f"Inertial Signals/{name}_{part}": rng.integers(0, 3, (len(persons), 128))
            for name in SIGNALS
        }
        tables[f"y_{part}"] = rng.integers(1, 7, (len(persons), 1))
        tables[f"subject_{part}"] = np.array(persons)[:, None]
        for name, rows in tables.items():
            lines = "".join(" ".join(map(str, row)) + "\n" for row in rows.tolist())
            parts[f"har/{part}/{name}.txt"] = lines
    return parts


def links():
    """Return links between three nodes, as ns-3 may write them: node 2 walks away."""
    lines = ["time_s,tx,rx,snr_db"]
    for time in (0.0, 0.02, 0.04):
        for tx, rx, near in ((0, 1, 1), (1, 0, 1), (0, 2, 0), (2, 0, 0), (1, 2, 0), (2, 1, 0)):
            lines.append(f"{time},{tx},{rx},{25.0 if near else 20.0 - 200 * time:g}")
    return {"links.csv": "\n".join(lines) + "\n"}


def traces():
    """Return what four clients can do and when they are there, in FedScale's terms."""
    capacity = "client,computation,communication\n"
    capacity += "".join(f"{7 * k},{12.5 * (k + 1)},{4000 // (k + 1)}\n" for k in range(4))
    table = {
        str(7 * k): {
            "duration": 40,
            "inactive": [10 + k, 30 + k],
            "finish_time": 40 + k,
            "active": [0, 20],
            "model": f"phone {k}",
        }
        for k in range(4)
    }
    there = json.dumps(table, indent=1) + "\n"
    return {"capacity.csv": capacity, "availability.json": there}


def samples():
    """Return all files: path below this folder -> text."""
    return {
        **femnist(np.random.default_rng(1)),
        **shakespeare(),
        **har(np.random.default_rng(2)),
        **links(),
        **traces(),
    }


if __name__ == "__main__":
    for name, text in samples().items():
        (HERE / name).parent.mkdir(parents=True, exist_ok=True)
        (HERE / name).write_text(text)
