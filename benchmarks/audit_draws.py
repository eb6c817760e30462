"""Make draws of a paper on one GPU: several processes at a time, within a budget of time.

    python benchmarks/audit_draws.py second --seeds 16 --first-draw 3000 --workers 4 \
        --budget-s 500 --out runs/full-fresh --pack fresh.tar.xz

Every process is a `folkman reproduce --share K/N` of one folder, so that runs are there as they
end, and the same command goes on with what is missing. The processes share the GPU through CUDA's
MPS where it starts, which saves an eighth of the time. What was not made is named at the end.
"""

import argparse
import os
import subprocess
import sys
import tarfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp

from folkman.record.run import ENDED
from folkman.record.store import SweepFolder

MPS = "nvidia-cuda-mps-control"

LEFT_OUT = {"parts", "models", "network", "figures"}
"""Folders of a run that are not packed: no audit looks at them."""

MEMORY_PART = 0.9
"""Of the GPU, for all processes together."""


def asked(words: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("figures", nargs="+")
    parser.add_argument("--size", default="full")
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--seeds", type=int, required=True)
    parser.add_argument("--first-draw", type=int, required=True)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--budget-s", type=float, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--pack", type=Path, help="write the folder into this archive, too")
    return parser.parse_args(words)


def start_mps() -> bool:
    """Start CUDA's MPS, and tell whether JAX works under it; stop it again if not."""
    for kind in ("PIPE", "LOG"):
        os.environ.setdefault(f"CUDA_MPS_{kind}_DIRECTORY", mkdtemp(prefix="mps"))
    try:
        subprocess.run([MPS, "-d"], check=True, capture_output=True, timeout=30)
        probe = [sys.executable, "-c", "import jax; assert jax.devices('cuda')"]
        subprocess.run(probe, check=True, capture_output=True, timeout=90)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"without MPS: {error}", flush=True)
        stop_mps()
        return False
    return True


def stop_mps() -> None:
    """Stop MPS, and forget where it was."""
    with suppress(OSError, subprocess.SubprocessError):
        subprocess.run([MPS], input=b"quit\n", capture_output=True, timeout=30, check=False)
    os.environ.pop("CUDA_MPS_PIPE_DIRECTORY", None)


def command(args: argparse.Namespace, number: int) -> list[str]:
    """Return the command of one of the processes."""
    told = ["--size", args.size, "--device", args.device, "--seeds", str(args.seeds)]
    told += ["--first-draw", str(args.first_draw), "--share", f"{number}/{args.workers}"]
    told += ["--budget-s", f"{args.budget_s:g}", "--out", str(args.out)]
    return [sys.executable, "-m", "folkman", "reproduce", *args.figures, *told]


def make(args: argparse.Namespace, logs: list[Path]) -> list[int]:
    """Run all processes to their end; return how each ended."""
    part = f"{MEMORY_PART / args.workers:.3f}"
    env = {**os.environ, "XLA_PYTHON_CLIENT_MEM_FRACTION": part, "PYTHONUNBUFFERED": "1"}
    started = []
    for number, log in enumerate(logs, 1):
        with log.open("ab") as sink:
            told = command(args, number)
            started.append(subprocess.Popen(told, env=env, stdout=sink, stderr=subprocess.STDOUT))
    return [process.wait() for process in started]


def tell(args: argparse.Namespace, codes: list[int], logs: list[Path]) -> None:
    """Say what is there and what is not, arm by arm, and how a process failed."""
    for code, log in zip(codes, logs, strict=True):
        if code:
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
            print(f"{log.name} ended with {code}:", *lines[-15:], sep="\n  ")
    folder = SweepFolder(args.out)
    if not folder.index.is_file():
        print("no run was made")
        return
    counts: dict[str, Counter[str]] = {}
    for job in folder.read_index()["jobs"]:
        state = "there" if job["state"] in ENDED else job["state"]
        counts.setdefault(job["arm"], Counter())[state] += 1
    for arm, states in counts.items():
        print(f"{arm}: " + ", ".join(f"{n} {state}" for state, n in states.items()))


def pack(root: Path, archive: Path, logs: list[Path]) -> None:
    """Write what an audit needs of the folder, and the logs, into one archive."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "w:xz") as target:
        for place in (root, *logs):
            if place.exists():
                target.add(place, place.name, filter=_kept)


def _kept(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if Path(member.name).name in LEFT_OUT else member


def main() -> int:
    """Make the draws, and tell."""
    args, started = asked(), time.monotonic()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    numbers = range(1, args.workers + 1)
    logs = [args.out.with_name(f"{args.out.name}-{number}.log") for number in numbers]
    shared = args.device == "gpu" and start_mps()
    try:
        codes = make(args, logs)
    finally:
        if shared:
            stop_mps()
    tell(args, codes, logs)
    if args.pack:
        pack(args.out, args.pack, logs)
    print(f"{time.monotonic() - started:.0f} s, {'with' if shared else 'without'} MPS")
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
