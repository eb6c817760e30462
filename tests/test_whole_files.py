"""Files appear whole or not at all, and what is no file stays what it is."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

from folkman.files import write_whole


def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(pipe.read_text)
        write_whole(pipe, lambda place: place.write_text("told"))

        assert reader.result() == "told"
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert list(tmp_path.iterdir()) == [pipe]


def test_a_folder_in_the_way_is_named_itself(tmp_path):
    folder = tmp_path / "out.toml"
    folder.mkdir()

    with pytest.raises(IsADirectoryError) as refused:
        write_whole(folder, lambda place: place.write_text("told"))

    assert refused.value.filename == str(folder)
    assert list(tmp_path.iterdir()) == [folder]


def test_a_file_is_replaced_when_it_is_whole(tmp_path):
    file = tmp_path / "file"
    file.write_text("old")

    def broken(place):
        place.write_text("half")
        raise OSError("full")

    with pytest.raises(OSError, match="full"):
        write_whole(file, broken)
    assert file.read_text() == "old"

    write_whole(file, lambda place: place.write_text("new"))
    assert file.read_text() == "new"
    assert list(tmp_path.iterdir()) == [file]
