"""What `tidemark up` fetches before an engine starts, and what it says of what it could not."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import manifests
import pytest

from tidemark_operator import api
from tidemark_operator.commands import model_fetch

PROGRAM = """
import sys
with open(sys.argv[1], "a") as told:
    print(*sys.argv[2:], file=told)
sys.exit(int(sys.argv[-1] == "missing"))
"""


def service(draft: str | None = None, source: dict[str, Any] | None = None) -> api.InferenceService:
    speculative = {"method": "ngram"} if draft is None else {"method": "draft", "draftModel": draft}
    document = manifests.changed("spec.speculative", speculative)
    document["spec"]["model"]["source"] = source or {"package": {"name": "large"}}
    return api.parse(document)


class Told:
    """A fetcher with a program in place of `tidemark` that notes how it is called."""

    def __init__(self, folder: Path) -> None:
        script, self._notes = folder / "program.py", folder / "notes"
        script.write_text(PROGRAM)
        self.fetcher = model_fetch.Fetcher({"tidemark": (sys.executable, str(script), str(self._notes))})

    @property
    def calls(self) -> list[str]:
        return self._notes.read_text().splitlines() if self._notes.exists() else []


async def test_the_draft_model_is_fetched_behind_the_model_and_each_once(tmp_path: Path) -> None:
    told = Told(tmp_path)
    await told.fetcher.ensure(service())
    assert told.calls == ["models fetch large"]
    await told.fetcher.ensure(service("small"))
    await told.fetcher.ensure(service("small"))
    assert told.calls == ["models fetch large", "models fetch small"]


async def test_a_draft_model_that_is_not_to_be_had_is_named(tmp_path: Path) -> None:
    told = Told(tmp_path)
    words = (
        r"the draft model \(spec\.speculative\.draftModel\) 'missing' could not be .* `tidemark models fetch missing`"
    )
    with pytest.raises(model_fetch.FetchFailed, match=words):
        await told.fetcher.ensure(service("missing"))
    with pytest.raises(model_fetch.FetchFailed):
        await told.fetcher.ensure(service("missing"))
    assert told.calls == ["models fetch large", "models fetch missing", "models fetch missing"]


async def test_files_beside_the_model_are_not_fetched(tmp_path: Path) -> None:
    told = Told(tmp_path)
    await told.fetcher.ensure(service("small.gguf", {"hostPath": {"path": "/models/large.gguf"}}))
    assert told.calls == []
