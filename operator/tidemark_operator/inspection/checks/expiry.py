"""Certificates and API keys that end soon: what the engines say, and what a TLS handshake shows. No Secret is read."""

from __future__ import annotations

import datetime
from collections.abc import Iterator

from tidemark_operator.inspection import check, text
from tidemark_operator.inspection.check import DAY, Check, Finding, Severity
from tidemark_operator.inspection.facts import Facts, Service
from tidemark_operator.inspection.text import Text

CRITICAL_SECONDS, WARNING_SECONDS, INFO_SECONDS = 3 * DAY, 14 * DAY, 30 * DAY


def certificates(service: Service, facts: Facts) -> Iterator[Finding]:
    shown, seen = service.certificate, list(_seen(service))
    for when in dict.fromkeys(moment for _, _, moment, _ in seen):
        same = [item for item in seen if item[2] == when]
        # One certificate that is shown and told of, or that all engines mount, is one thing to replace.
        where, pod = same[0][0], same[0][1] if len(same) == 1 else ""
        evidence = ", ".join(dict.fromkeys(item[3] for item in same))
        yield from _ends(service, pod, _the_certificate(where), when, facts, evidence)
    if shown is not None and shown.not_after is None:
        raise check.NotChecked(
            Text(
                f"no TLS handshake with {shown.where}: {shown.problem}",
                f"无法与 {shown.where} 进行 TLS 握手：{shown.problem}",
            )
        )
    if shown is None and not seen:
        if service.set("access.tlsSecretRef") or service.url.startswith("https:"):
            raise check.NotChecked(Text("nobody said when its certificate ends", "无法得知证书到期时间"))
        check.statuses(service)


def _seen(service: Service) -> Iterator[tuple[str, str, float, str]]:
    """Where, pod, when it ends (whole minutes), and how that is known."""
    shown = service.certificate
    if shown is not None and shown.not_after is not None:
        yield shown.where, "", _minute(shown.not_after.timestamp()), "TLS handshake"
    for engine in service.engines:
        when = engine.status.certificate_expires if engine.status is not None else None
        if when is not None:
            yield engine.name, engine.name, _minute(when), "certificateExpires"


def _minute(seconds: float) -> float:
    return seconds // 60 * 60


def _the_certificate(where: str) -> Text:
    return Text(f"The certificate of {where}", f"{where} 的证书")


def keys(service: Service, facts: Facts) -> Iterator[Finding]:
    check.statuses(service)
    ends: dict[str, float] = {}
    for engine in service.engines:
        ends.update(engine.status.keys_expire if engine.status is not None else {})
    for name, when in sorted(ends.items()):
        yield from _ends(service, "", Text(f"API key {name}", f"API 密钥 {name}"), when, facts, f"keysExpire.{name}")


def _ends(service: Service, pod: str, whose: Text, when: float, facts: Facts, evidence: str) -> Iterator[Finding]:
    left = when - facts.now.timestamp()
    if left > INFO_SECONDS:
        return
    severity = Severity.INFO if left > WARNING_SECONDS else Severity.WARNING
    if left <= CRITICAL_SECONDS:
        severity = Severity.CRITICAL
    date = f"{datetime.datetime.fromtimestamp(when, datetime.UTC):%Y-%m-%d %H:%M} UTC"
    how = (
        Text(f"ends in {text.seconds(left)}, on {date}", f"将在 {text.seconds(left)} 后到期（{date}）")
        if left > 0
        else Text(f"ended {text.seconds(-left)} ago, on {date}", f"已于 {text.seconds(-left)} 前到期（{date}）")
    )
    yield Finding(
        severity=severity,
        service=service.title,
        pod=pod,
        what=Text(f"{whose.en} {how.en}.", f"{whose.zh}{how.zh}。"),
        evidence=(f"{evidence}: {date}",),
        advice=_ADVICE,
    )


_ADVICE = Text(
    "Replace it in its Secret (spec.access.tlsSecretRef, spec.access.apiKeysSecretRef): engines take the new one "
    "within about a minute, without a restart.",
    "在对应的 Secret（spec.access.tlsSecretRef、spec.access.apiKeysSecretRef）中更换：引擎约一分钟内生效，无需重启。",
)


CERTIFICATE_CHECK = Check(
    name="certificates",
    title=Text("Certificates about to end", "即将到期的证书"),
    fine=Text("none ends within 30 days", "30 天内没有到期"),
    of_service=certificates,
)
KEY_CHECK = Check(
    name="api-keys",
    title=Text("API keys about to end", "即将到期的 API 密钥"),
    fine=Text("none ends within 30 days", "30 天内没有到期"),
    of_service=keys,
)
