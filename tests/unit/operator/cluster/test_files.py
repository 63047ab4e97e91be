"""The state folder and who holds a name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tidemark_operator.cluster.local import files


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"TIDEMARK_STATE": "/s", "XDG_STATE_HOME": "/x", "HOME": "/h"}, "/s"),
        ({"XDG_STATE_HOME": "/x", "HOME": "/h"}, "/x/tidemark"),
        ({"TIDEMARK_STATE": "", "HOME": "/h"}, "/h/.local/state/tidemark"),
    ],
)
def test_root(environment: dict[str, str], expected: str) -> None:
    assert files.root(environment) == Path(expected)


def test_a_name_is_held_once_and_the_second_is_told_by_whom(tmp_path: Path) -> None:
    first, second = files.ServiceFolder(tmp_path, "a"), files.ServiceFolder(tmp_path, "a")
    assert second.holder() is None
    first.acquire()
    assert files.running(tmp_path) == ["a"]
    with pytest.raises(files.AlreadyRuns, match=rf"'a' is already run by `tidemark up`, process {os.getpid()}\."):
        second.acquire()
    first.release()
    assert files.running(tmp_path) == []
    second.acquire()
    second.release()


def test_what_a_killed_predecessor_left_is_cleared(tmp_path: Path) -> None:
    folder = files.ServiceFolder(tmp_path, "a")
    folder.pods.mkdir(parents=True)
    (folder.pods / "old").touch()
    folder.socket.touch()
    folder.acquire()
    assert not folder.pods.exists()
    assert not folder.socket.exists()
    assert folder.path.stat().st_mode & 0o777 in (0o755, 0o700)
    folder.release()


def test_a_path_too_long_for_a_socket_is_refused_with_the_remedy(tmp_path: Path) -> None:
    folder = files.ServiceFolder(tmp_path / ("x" * 110), "a")
    with pytest.raises(files.StateFolderError, match=r"107.*TIDEMARK_STATE"):
        folder.acquire()


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(files.StateFolderError, match=r"cannot write to .*TIDEMARK_STATE"):
        files.ServiceFolder(tmp_path / "file", "a").acquire()


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    folder = files.ServiceFolder(tmp_path, "a")
    with monkeypatch.context() as disk:
        disk.setattr(os, "write", full)
        with pytest.raises(files.StateFolderError, match=r"No space left on device\. Free some space.*TIDEMARK_STATE"):
            folder.acquire()
    folder.acquire()  # it is not held by the one that failed
    folder.release()


def test_nothing_runs_where_there_is_no_folder(tmp_path: Path) -> None:
    assert files.running(tmp_path / "none") == []
