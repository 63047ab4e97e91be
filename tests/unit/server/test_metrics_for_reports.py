"""What the cost report reads of an engine: tokens by key, and what a token costs in KV memory beside 16 bits."""

from __future__ import annotations

import pytest
from prometheus_client import parser


@pytest.fixture
def scrape(http):
    async def run() -> dict:
        text = (await http.get("/metrics")).text
        samples = [sample for family in parser.text_string_to_metric_families(text) for sample in family.samples]
        return {(sample.name, *sorted(sample.labels.values())): sample.value for sample in samples}

    return run


async def test_tokens_by_key_are_those_of_all(scrape, http):
    await http.post("/v1/completions", json={"prompt": "Hi", "max_tokens": 2})
    found = await scrape()
    assert found["tidemark_key_tokens_total", "", "prompt"] == found["tidemark_prompt_tokens_total",] > 0
    assert found["tidemark_key_tokens_total", "", "generated"] == found["tidemark_generated_tokens_total",] > 0


async def test_a_token_in_memory_and_at_16_bits(scrape, http):
    shape = (await http.get("/status")).json()["model"]["shape"]
    found = await scrape()
    elements = 2 * shape["numLayers"] * shape["numKvHeads"] * shape["headDim"]
    assert found["tidemark_kv_token_bytes", "16bit"] == 2 * elements
    assert found["tidemark_kv_token_bytes", "stored"] == shape["kvTokenBytes"]


async def test_tokens_of_a_key_are_there_before_its_first_request(scrape):
    """Prometheus sees no rise in a series that is born with it."""
    found = await scrape()
    assert found["tidemark_key_tokens_total", "", "prompt"] == 0
    assert found["tidemark_key_tokens_total", "", "generated"] == 0
