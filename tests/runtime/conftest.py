"""Fixtures of several files: certificates, and a door for operators over real sockets and TLS."""

import shutil

import pytest
from doors import OpenDoor, authority

from folkman.runtime.fleet import operator_door


@pytest.fixture(scope="module")
def issued(tmp_path_factory):
    """Return certificates that no test changes."""
    return authority(tmp_path_factory.mktemp("issued") / "certs")


@pytest.fixture
def certs(issued, tmp_path):
    shutil.copytree(issued, tmp_path / "certs")
    return tmp_path / "certs"


@pytest.fixture
def door(certs, tmp_path, monkeypatch):
    monkeypatch.setattr(operator_door, "FAREWELL_S", 0.1)
    made = OpenDoor(certs, tmp_path / "home")
    yield made
    made.close()
