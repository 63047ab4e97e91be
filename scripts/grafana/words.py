"""Every text that a person reads is given in both languages at the place where it is used."""

from __future__ import annotations

from dataclasses import dataclass

from tidemark_operator.monitoring.rules.model import Language


@dataclass(frozen=True, slots=True)
class Say:
    """One rendered set speaks one language."""

    language: Language

    def __call__(self, english: str, chinese: str) -> str:
        return chinese if self.language is Language.ZH else english
