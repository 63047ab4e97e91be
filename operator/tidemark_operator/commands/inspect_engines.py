"""Facts of engines that are addresses: the URLs of `tidemark inspect --url`, and the `tidemark up` of this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib import parse

import msgspec

from tidemark_operator.commands import inspect_tls, profile_reader
from tidemark_operator.inspection import facts
from tidemark_runtime.contract import status as contract


def scrape(samples: profile_reader.Samples) -> facts.Scrape:
    """As checks read it."""
    return facts.Scrape(
        {
            name: [facts.Series(dict(labels), value) for labels, value in values.items()]
            for name, values in samples.values.items()
        }
    )


def of_url(url: str, ca_file: Path | None) -> facts.Service:
    """One address. Raises `NotAnEngine` for a text that is none, and for a CA file that cannot be used."""
    engine, shown = _asked(url, ca_file), profile_reader.shown(url)
    return facts.Service(
        origin=facts.Origin.URL, url=shown, engines=(engine,), certificate=inspect_tls.certificate_of(shown)
    )


def _asked(url: str, ca_file: Path | None) -> facts.Engine:
    client = profile_reader.Engine(url, ca_file)
    name = parse.urlsplit(profile_reader.shown(url)).netloc
    try:
        status = client.ask_status()
        try:
            samples = client.ask_samples()
        except profile_reader.NotAnEngine as error:
            return facts.Engine(name=name, status=status, why_not=str(error))
        return facts.Engine(name=name, status=status, scrape=scrape(samples))
    except profile_reader.NotAnEngine as error:
        return facts.Engine(name=name, why_not=str(error))
    finally:
        client.close()


def of_local(overview: Mapping[str, Any], ca_file: Path | None) -> facts.Service:
    """A `tidemark up`, from what it says of itself. Its pods share one address: with several, which of them answers
    `/metrics` is not known, so none is asked."""
    url, pods = overview["url"] or "", overview["pods"]
    samples, why_not = None, "several pods share one address, and one /metrics would be of any of them"
    if url and len(pods) == 1:
        client = profile_reader.Engine(url, ca_file)
        try:
            samples, why_not = scrape(client.ask_samples()), ""
        except profile_reader.NotAnEngine as error:
            why_not = str(error)
        finally:
            client.close()
    return facts.Service(
        origin=facts.Origin.LOCAL,
        namespace=overview["namespace"],
        name=overview["name"],
        url=url,
        spec=overview["spec"],
        status=overview["status"],
        generation=overview["generation"],
        engines=[
            facts.Engine(
                name=pod["name"],
                status=None if pod["engine"] is None else msgspec.convert(pod["engine"], contract.EngineStatus),
                scrape=samples,
                why_not=why_not if pod["engine"] is not None else "it gave `tidemark up` no answer",
                pod=pod,
            )
            for pod in pods
        ],
        certificate=inspect_tls.certificate_of(url) if url else None,
        labels=(overview["namespace"], overview["name"]),
    )
