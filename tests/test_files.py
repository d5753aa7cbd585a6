import json
import multiprocessing
import os

import pytest

from latentlink import _files
from latentlink._checks import InvalidInput


def test_replacing_leaves_the_old_file_on_error(tmp_path):
    path = tmp_path / "a.json"
    _files.write_json(path, {"a": 1})
    with pytest.raises(IsADirectoryError), _files.replacing(path) as temporary:
        temporary.write_text("half") and tmp_path.write_text("fails")
    assert _files.read_json(path) == {"a": 1}
    assert os.listdir(tmp_path) == ["a.json"]


def test_replacing_respects_the_umask(tmp_path):
    with _files.replacing(tmp_path / "a") as temporary:
        temporary.write_text("x")
    mask = os.umask(0)
    os.umask(mask)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o666 & ~mask


def test_nan_is_not_json(tmp_path):
    with pytest.raises(ValueError, match="Out of range float"):
        _files.write_json(tmp_path / "a.json", float("nan"))
    assert os.listdir(tmp_path) == []


def test_replacing_folder_swaps_whole_folders(tmp_path):
    path = tmp_path / "space"
    for content in ("one", "two"):
        with _files.replacing_folder(path) as temporary:
            (temporary / "f").write_text(content)
    with pytest.raises(IsADirectoryError), _files.replacing_folder(path) as temporary:
        (temporary / "f").write_text("three") and tmp_path.write_text("fails")
    assert (path / "f").read_text() == "two"
    assert os.listdir(tmp_path) == ["space"]


def test_replacing_folder_puts_the_old_one_back(tmp_path, monkeypatch):
    path = tmp_path / "space"
    with _files.replacing_folder(path) as temporary:
        (temporary / "f").write_text("one")
    true_replace = os.replace

    def failing(source, target):
        if str(source).endswith(".tmp"):
            raise OSError("disk")
        true_replace(source, target)

    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(OSError, match="disk"), _files.replacing_folder(path) as temporary:
        (temporary / "f").write_text("two")
    assert (path / "f").read_text() == "one"


def test_broken_json_is_named(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("{")
    with pytest.raises(InvalidInput, match=r"a\.json is not JSON .*; was it written by latentlink\?"):
        _files.read_json(path)


def test_sha256(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"abc")
    assert _files.sha256(path).startswith("ba7816bf8f01cfea")  # the published test vector


def _hold(path, ready, release):
    with _files.locked(path):
        ready.set()
        release.wait(30)


def test_a_second_writer_is_told_who_writes(tmp_path):
    context = multiprocessing.get_context("spawn")
    ready, release = context.Event(), context.Event()
    path = tmp_path / "index"
    writer = context.Process(target=_hold, args=(path, ready, release))
    writer.start()
    assert ready.wait(30)
    with (
        pytest.raises(InvalidInput, match=f"index is being written by process {writer.pid}; wait"),
        _files.locked(path),
    ):
        pass
    release.set()
    writer.join(30)
    with _files.locked(path):
        assert json.loads(path.with_name("index.lock").read_text()) == os.getpid()
