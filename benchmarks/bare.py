"""Let folkman's radio run where only NumPy and JAX are installed.

Import this before folkman. It makes the source tree importable, and stands in for `jaxtyping` where
it is missing: shapes in annotations are for readers and checkers, no number depends on them.
"""

import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


class _Shape:
    """Any annotation, such as Float[Array, "rx tx"]."""

    def __class_getitem__(cls, _: Any) -> Any:
        return Any


for place in (str(ROOT), str(ROOT / "src")):
    if place not in sys.path:
        sys.path.insert(0, place)
if find_spec("jaxtyping") is None:
    stand_in: Any = ModuleType("jaxtyping")
    for name in ("Bool", "Float", "Int", "Num", "PRNGKeyArray"):
        setattr(stand_in, name, _Shape)
    sys.modules["jaxtyping"] = stand_in
