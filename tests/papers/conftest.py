"""What the tests of papers share: the paper that comes with folkman."""

import pytest

from folkman.papers.paper import find


@pytest.fixture(scope="session")
def xie():
    """Return the paper that folkman implements."""
    return find("xie2024")
