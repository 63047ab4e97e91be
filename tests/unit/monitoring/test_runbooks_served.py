"""The operator serves the runbooks itself: what `runbook_url` leads to by default."""

from __future__ import annotations

import urllib.parse

import httpx
import pytest
import yaml

from tidemark_operator.commands import operator_http
from tidemark_operator.monitoring import site
from tidemark_operator.monitoring.rules.thresholds import Thresholds


@pytest.fixture
async def client():
    def good() -> operator_http.Verdict:
        return operator_http.Verdict(True, "ok")

    app = operator_http.application(operator_http.Probes(good, good, lambda: b""))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://operator") as client:
        yield client


async def test_every_default_link_of_an_alert_is_served(client: httpx.AsyncClient) -> None:
    rules = yaml.safe_load(site.rules(Thresholds())[site.RULES])
    links = [
        rule["annotations"]["runbook_url"] for group in rules["groups"] for rule in group["rules"] if "alert" in rule
    ]
    for link in links:
        answer = await client.get(urllib.parse.urlsplit(link).path)
        assert answer.status_code == 200, link
        assert answer.headers["content-type"] == "text/markdown; charset=utf-8"
        assert answer.text.startswith(f"# {link.rpartition('/')[2].removesuffix('.md')}\n")


async def test_chinese_ones_are_served_too(client: httpx.AsyncClient) -> None:
    assert "## 含义" in (await client.get("/runbooks/zh/TidemarkEngineDown.md")).text


@pytest.mark.parametrize(
    "path", ["/runbooks/en/Other.md", "/runbooks/fr/TidemarkEngineDown.md", "/runbooks/en/..%2Fzh"]
)
async def test_others_are_not_there_and_those_that_are_get_listed(client: httpx.AsyncClient, path: str) -> None:
    answer = await client.get(path)
    assert answer.status_code == 404
    if "%2F" not in path:
        assert "/runbooks/en/TidemarkEngineDown.md" in answer.text
