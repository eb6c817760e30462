"""What came out of benchmarks/fresh_air_opponents.py: losses, and ratios with their intervals."""

import math
from typing import Any

__all__ = ["losses", "ratio", "table"]

T_95 = {2: 4.303, 9: 2.262}
"""Student's t for 95 %, by degrees of freedom."""
FIRST_LOSS = math.log(10.0)
"""Of a model that knows nothing of ten classes."""

Json = dict[str, Any]


def losses(line: Json, column: str = "train_loss") -> list[float]:
    """Return the judged losses by drop; one that diverged counts with the first model's."""
    values = [(run["status"], run[column]) for _, run in sorted(line["judged"].items())]
    return [v if how == "finished" and v is not None else FIRST_LOSS for how, v in values]


def ratio(mine: Json, other: Json, column: str = "train_loss") -> tuple[float, float, float]:
    """Return the geometric mean of mine over other on the same drops, and its interval."""
    logs = [
        math.log(a / b) for a, b in zip(losses(mine, column), losses(other, column), strict=True)
    ]
    mean = sum(logs) / len(logs)
    spread = math.sqrt(sum((x - mean) ** 2 for x in logs) / max(len(logs) - 1, 1))
    half = T_95.get(len(logs) - 1, 2.0) * spread / math.sqrt(len(logs))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def table(cells: list[str], lines: list[Json]) -> None:
    """Print the losses of all sides, and the comparisons of the plan, cells in the given order."""
    by_cell: dict[str, dict[str, Json]] = {}
    for line in lines:
        by_cell.setdefault(line["cell"], {})[line["side"]] = line
    order = [name for name in cells if name in by_cell]
    shown = ("paper", "uniform", "fresh", "measured", "centred", "adaptive")
    shown += ("station", "devices", "dpsgd", "sgp", "free")
    shown += ("moving", "station_m", "devices_m")
    for column in ("train_loss", "node_train_loss"):
        print(f"\n{column}: median [worst] over drops (gradients a node; diverged)\n")
        print("| cell | " + " | ".join(shown) + " |")
        print("|---" * (len(shown) + 1) + "|")
        for name in order:
            print(
                f"| {name} | " + " | ".join(_entry(by_cell[name], s, column) for s in shown) + " |"
            )
    for column in ("train_loss", "node_train_loss"):
        print(f"\nratios of {column}: geometric mean [95 %]\n")
        pairs = [
            ("fresh", "devices"), ("measured", "devices"), ("centred", "devices"),
            ("adaptive", "devices"), ("adaptive", "station"), ("adaptive", "paper"),
            ("fresh", "station"), ("centred", "station"), ("centred", "paper"),
            ("measured", "station"), ("fresh", "paper"), ("devices", "station"), ("fresh", "free"),
            ("moving", "adaptive"), ("moving", "station_m"), ("moving", "devices_m"),
        ]  # fmt: skip
        print("| cell | " + " | ".join(f"{a} / {b}" for a, b in pairs) + " |")
        print("|---" * (len(pairs) + 1) + "|")
        for name in order:
            sides = by_cell[name]
            print(f"| {name} | " + " | ".join(_ratio_text(sides, *p, column) for p in pairs) + " |")
    print("\nbest options\n\n| cell | " + " | ".join(shown) + " |")
    print("|---" * (len(shown) + 1) + "|")
    for name in order:
        best = [by_cell[name].get(s, {}).get("best", "") for s in shown]
        print(f"| {name} | " + " | ".join(" x ".join(f"{b:g}" for b in x) for x in best) + " |")


def _entry(sides: dict[str, Json], side: str, column: str) -> str:
    if side not in sides:
        return ""
    values = sorted(losses(sides[side], column))
    runs = list(sides[side]["judged"].values())
    gradients = sum(run["gradients"] or 0 for run in runs) / len(runs)
    gone = sum(run["status"] != "finished" for run in runs)
    more = f"; {gone}" if gone else ""
    middle = (values[len(values) // 2] + values[(len(values) - 1) // 2]) / 2
    return f"{middle:.3g} [{values[-1]:.3g}] ({gradients:.0f}{more})"


def _ratio_text(sides: dict[str, Json], mine: str, other: str, column: str) -> str:
    if mine not in sides or other not in sides:
        return ""
    mean, low, high = ratio(sides[mine], sides[other], column)
    return f"{mean:.2f} [{low:.2f}, {high:.2f}]"
