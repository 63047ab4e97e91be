"""The section `speculative`: a draft model goes with its method, and all of it needs a new process."""

from __future__ import annotations

import pytest

from tidemark_runtime import config, config_parsing, errors
from tidemark_runtime.contract import settings


def test_nothing_is_guessed_unless_asked_for() -> None:
    assert config_parsing.parse({}).speculative == config.SpeculativeConfig(method="none", tokens=4, draft_model=None)


@pytest.mark.parametrize(
    ("section", "told"),
    [
        ({"method": "draft"}, "speculative.draftModel: got None, expected a model"),
        ({"method": "ngram", "draftModel": "x"}, "expected nothing with speculative.method ngram"),
        ({"draftModel": "x"}, "expected nothing with speculative.method none"),
        ({"tokens": 7}, "speculative.tokens: got 7, expected 4, its default, with speculative.method none"),
        ({"method": "medusa"}, "expected one of none, ngram, draft"),
        ({"tokens": 0}, "expected a whole number from 1 to 32"),
        ({"tokens": 33}, "expected a whole number from 1 to 32"),
    ],
)
def test_what_cannot_be_is_refused(section: dict[str, object], told: str) -> None:
    with pytest.raises(errors.ConfigError) as caught:
        config_parsing.parse({"speculative": section})
    assert told in str(caught.value)


@pytest.mark.parametrize(
    "section", [{"tokens": 4}, {"method": "none", "tokens": 4}, {"method": "ngram", "tokens": 7}, {"tokens": None}]
)
def test_what_has_an_effect_or_asks_for_nothing_is_accepted(section: dict[str, object]) -> None:
    assert config_parsing.parse({"speculative": section}).speculative.tokens == (section["tokens"] or 4)


def test_a_change_needs_a_new_process() -> None:
    assert not {key for key in settings.HOT_KEYS if key.startswith("speculative.")}
    before = config_parsing.parse({})
    after = config_parsing.parse({"speculative": {"method": "ngram"}})
    assert settings.restart_hash(before) != settings.restart_hash(after)
