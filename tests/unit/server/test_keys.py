"""Bearer keys from a file that may change, break and come back."""

from __future__ import annotations

import dataclasses
import os

import pytest

from tidemark_runtime import config, errors
from tidemark_runtime.contract import http as paths
from tidemark_runtime.server import app as server_app
from tidemark_runtime.server import keys, watched_files


@pytest.fixture
def key_file(tmp_path):
    path = tmp_path / "keys"
    path.write_text("# the team\nalpha-key  # Ann\n\nbeta-key\n")
    return path


@pytest.fixture
def settings(settings, key_file):
    return dataclasses.replace(settings, server=config.ServerConfig(api_keys_file=str(key_file)))


async def status(http, key: str | None, scheme: str = "Bearer") -> int:
    headers = {} if key is None else {"authorization": f"{scheme} {key}"}
    return (await http.get(paths.MODELS_PATH, headers=headers)).status_code


async def test_only_keys_of_the_file_open_the_api(http):
    assert [await status(http, key) for key in ("alpha-key", "beta-key")] == [200, 200]
    for key in (None, "", "alpha", "alpha-key2", "# the team", "the team", "alpha-key  # Ann"):
        assert await status(http, key) == 401
    assert await status(http, "alpha-key", "Basic") == 401
    assert await status(http, "alpha-key", "bearer") == 200


async def test_the_refusal_has_openais_shape_and_does_not_repeat_the_key(http):
    response = await http.post(paths.CHAT_PATH, headers={"authorization": "Bearer s3cret"}, content=b"{")
    assert response.status_code == 401
    assert response.json()["error"]["code"] == "invalid_api_key"
    assert "s3cret" not in response.text
    assert response.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("path", sorted(paths.OPEN_PATHS))
async def test_probes_need_no_key(http, path):
    assert (await http.get(path)).status_code == 200


async def test_a_changed_file_is_in_force_within_a_second(http, key_file, clock):
    key_file.write_text("gamma-key\n")
    clock.now += 1
    assert [await status(http, key) for key in ("alpha-key", "gamma-key")] == [401, 200]


async def test_a_replaced_file_of_the_same_size_and_time_is_noticed(http, key_file, clock, tmp_path):
    before = os.stat(key_file)
    other = tmp_path / "other"
    other.write_text(key_file.read_text().replace("alpha", "gamma"))
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(key_file)
    clock.now += 1
    assert await status(http, "gamma-key") == 200


@pytest.mark.parametrize("damage", ["removed", "empty", "binary"])
async def test_a_file_that_goes_bad_leaves_the_last_keys(http, key_file, clock, caplog, damage):
    if damage == "removed":
        key_file.unlink()
    else:
        key_file.write_bytes(b"" if damage == "empty" else b"\xff\xfe s3cret")
    for _ in range(3):
        clock.now += 1
        assert await status(http, "alpha-key") == 200
    assert len(caplog.records) == 1
    assert not {"alpha", "beta", "s3cret"} & set(caplog.text.replace("-", " ").split())
    message = (await http.get(paths.STATUS_PATH)).json()["message"]
    assert "stay in force" in message
    key_file.write_text("delta-key\n")
    clock.now += 1
    assert [await status(http, key) for key in ("alpha-key", "delta-key")] == [401, 200]
    assert (await http.get(paths.STATUS_PATH)).json()["message"] == "Serving."


@pytest.mark.parametrize("content", [None, b"", b"# only words\n", b"\xff\xfe"])
def test_an_unusable_file_stops_the_start(settings, key_file, content):
    key_file.unlink()
    if content is not None:
        key_file.write_bytes(content)
    with pytest.raises(errors.ConfigError, match=r"server\.apiKeysFile") as caught:
        server_app.create_app(None, None, settings)
    assert str(key_file) in str(caught.value)


def test_the_file_is_looked_at_once_a_second_at_most(key_file, clock, monkeypatch):
    file = keys.KeyFile(key_file, clock)
    looks = []
    monkeypatch.setattr(watched_files, "stamp", lambda path: looks.append(path) or (0, 0, 0))
    for _ in range(10):
        file.allows("x")
    assert looks == []
    clock.now += 1
    for _ in range(10):
        file.allows("x")
    assert len(looks) == 1


@pytest.mark.parametrize("key", ["alpha#1", "#alpha", "Schl\u00fcssel-\u9470"])
async def test_only_the_whole_key_opens(http, key_file, clock, key):
    """A `#` inside a key begins no comment: its first part alone would open the API then."""
    key_file.write_text(f"x{key}  # Ann\n", encoding="utf-8")
    clock.now += 1
    headers = {"authorization": f"Bearer x{key}".encode()}
    assert (await http.get(paths.MODELS_PATH, headers=headers)).status_code == 200
    assert [await status(http, part) for part in ("x", "xalpha", "xSchl")] == [401] * 3


async def test_a_byte_order_mark_is_no_part_of_the_first_key(http, key_file, clock):
    key_file.write_text("alpha-key\n", encoding="utf-8-sig")
    clock.now += 1
    assert await status(http, "alpha-key") == 200


async def test_a_key_that_is_no_text_is_a_wrong_key(http):
    response = await http.get(paths.MODELS_PATH, headers={b"authorization": b"Bearer \xff\xfe"})
    assert response.status_code == 401
