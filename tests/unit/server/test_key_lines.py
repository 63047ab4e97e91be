"""What a line of the key file may say, and how a wrong one is named without repeating a key."""

from __future__ import annotations

import dataclasses
import hashlib

import pytest

from tidemark_runtime import config, errors
from tidemark_runtime.server import app as server_app
from tidemark_runtime.server import key_lines


def parse(text: str, *, attributes: bool = True) -> list[key_lines.Key]:
    return list(key_lines.parse(text, attributes=attributes))


def key(word: str, *attributes: object) -> key_lines.Key:
    return key_lines.Key(hashlib.sha256(word.encode()).digest(), *attributes)


def test_a_key_alone_has_priority_0_and_may_not_ask_for_more():
    assert parse("alpha\n\n# words\n  beta  # Ann\n") == [key("alpha", "", 0, 0), key("beta", "", 0, 0)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("k name=contracts", ("contracts", 0, 0)),
        ("k max-priority=5", ("", 0, 5)),
        ("k priority=-1", ("", -1, -1)),
        ("k priority=3", ("", 3, 3)),
        ("k\tname=a.b-c_1   priority=-100 max-priority=+100 # Ann", ("a.b-c_1", -100, 100)),
        ("k#1=x name=a", ("a", 0, 0)),
    ],
)
def test_attributes(line, expected):
    assert parse(line) == [key(line.split()[0], *expected)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("good\ns3cret nme=a", "of line 2 is none of name=..., priority=..., max-priority=..., until=.... Correct"),
        ("s3cret half2", "word 2 of line 1 is none of"),
        ("s3cret name=a name=b", "line 1 has name twice"),
        ("s3cret name=", "line 1 has name='', expected 1 to 63 letters"),
        ("s3cret name=-a", "expected 1 to 63 letters"),
        ("s3cret name=" + "a" * 64, "expected 1 to 63 letters"),
        ("s3cret name=\u5408\u540c", "expected 1 to 63 letters"),
        ("s3cret priority=101", "line 1 has priority='101', expected a whole number from -100 to 100"),
        ("s3cret priority=-101", "expected a whole number from -100 to 100"),
        ("s3cret priority=1.5", "expected a whole number"),
        ("s3cret priority=", "expected a whole number"),
        ("s3cret priority=\u0661", "expected a whole number"),
        ("s3cret max-priority=high", "line 1 has max-priority='high', expected a whole number from -100 to 100"),
        (
            "s3cret priority=2 max-priority=1",
            "line 1 has priority=2 and max-priority=1, expected max-priority to be at",
        ),
        ("s3cret max-priority=-1", "line 1 has priority=0 and max-priority=-1"),
        ("s3cret name=a\n\nother name=a", "lines 1 and 3 hold different keys with the same name=a"),
        ("s3cret\ns3cret priority=1", "lines 1 and 2 hold the same key with different attributes"),
        ("# nothing\n", "it holds no key"),
    ],
)
def test_a_wrong_line_is_named_and_no_key_is_repeated(text, words):
    with pytest.raises(ValueError, match=r"line|key") as caught:
        parse(text)
    assert words in str(caught.value)
    assert "s3cret" not in str(caught.value)
    assert "half2" not in str(caught.value)


def test_the_same_line_twice_is_one_key():
    assert len(parse("alpha name=a\nalpha name=a\nbeta\nbeta\n")) == 2


def test_a_token_has_no_attributes():
    assert parse("token # of Ann\n", attributes=False) == [key("token")]
    with pytest.raises(ValueError, match="line 1 holds more than one word; a token has no attributes, and no spaces"):
        parse("token name=a", attributes=False)


@pytest.mark.parametrize("line", ["abc def", "abc def name=x", "abc name=x def", "abc def # a comment", "abc\tdef"])
def test_a_key_with_a_space_from_before_is_refused_and_never_read_as_another(line):
    """Such a line was one key, space and all. What is wrong and what to do is told, and nothing of the key."""
    with pytest.raises(ValueError, match=r"of line 2 is none of .* replace that key by one without spaces") as caught:
        parse(f"good\n{line}")
    assert "RFC 6750" in str(caught.value)
    assert "abc" not in str(caught.value)
    assert "def" not in str(caught.value)


@pytest.mark.parametrize("old", ["sk-a+b/c~d.e_f-1==", "with#inside", "schlüssel:€", "name=x", "priority=high"])
def test_every_key_of_before_without_a_space_still_is_one(old):
    assert parse(f"  {old}  # a comment") == [key(old)]


def test_tenants_of_keys_without_a_name_differ_and_are_never_a_name():
    alpha, beta, named = parse("alpha\nbeta\ngamma name=team")
    assert named.tenant == "team"
    assert alpha.tenant != beta.tenant
    assert alpha.tenant.startswith("sha256:")
    assert len(alpha.tenant) == len("sha256:") + 12
    with pytest.raises(ValueError, match="expected 1 to 63 letters"):
        parse(f"delta name={alpha.tenant}")
    assert key_lines.ANYONE.tenant == ""


def test_a_wrong_line_stops_the_start_and_names_file_and_line(settings, tmp_path):
    (tmp_path / "keys").write_text("alpha colour=red\n")
    (tmp_path / "token").write_text("beta name=b\n")
    server = config.ServerConfig(api_keys_file=str(tmp_path / "keys"), admin_token_file=str(tmp_path / "token"))
    with pytest.raises(errors.ConfigError) as caught:
        server_app.create_app(None, None, dataclasses.replace(settings, server=server))
    assert [problem.key for problem in caught.value.problems] == ["server.apiKeysFile", "server.adminTokenFile"]
    assert "word 2 of line 1" in str(caught.value)
