"""Manifest files: YAML with several documents, each an InferenceService, errors with their lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from tidemark_operator import errors
from tidemark_operator.api import describe, parsing, service
from tidemark_runtime.contract import yaml_words

MAX_FILE_BYTES = 4 * 2**20


def load_file(path: Path) -> list[service.InferenceService]:
    """Every InferenceService of a file, in its order.

    Raises `ManifestFileError` where there is nothing to look at, `ManifestError` with the problems of all documents.
    """
    return load_text(read_text(path), str(path))


def load_text(text: str, source: str) -> list[service.InferenceService]:
    """As `load_file`, from text; `source` is what messages call it."""
    services: list[service.InferenceService] = []
    lines: list[int | None] = []
    problems: list[errors.Problem] = []
    for document, node in _documents(text, source):
        try:
            locate = _locator(node)
            services.append(parsing.parse(document, source, locate))
            lines.append(locate(("metadata", "name")))
        except errors.ManifestError as error:
            problems.extend(error.problems)
    problems.extend(_same_name_twice(services, lines))
    if problems:
        raise errors.ManifestError(problems, source)
    if not services:
        raise errors.ManifestFileError(
            f"{source}: there is no document in it. Write an InferenceService, or try examples/smollm2.yaml."
        )
    return services


def load_plain(path: Path) -> tuple[Any, parsing.Locate]:
    """The one document of a YAML file that is no manifest, and where its lines are. Raises `ManifestFileError`."""
    found = list(_documents(read_text(path), str(path)))
    if len(found) != 1:
        raise errors.ManifestFileError(f"{path}: has {len(found)} documents, expected one.")
    document, node = found[0]
    return document, _locator(node)


def read_text(path: Path) -> str:
    """The file's text. Raises `ManifestFileError` with the reason and a remedy."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError as error:
        raise errors.ManifestFileError(
            f"{path}: there is no such file. Check the path; it is looked for in {Path.cwd()}."
        ) from error
    except IsADirectoryError as error:
        raise errors.ManifestFileError(f"{path}: is a folder, expected a YAML file. Name the file in it.") from error
    except PermissionError as error:
        raise errors.ManifestFileError(f"{path}: may not be read by this user. Try chmod +r.") from error
    except (OSError, ValueError) as error:
        raise errors.ManifestFileError(f"{path}: cannot be read: {error}.") from error
    if len(data) > MAX_FILE_BYTES:
        raise errors.ManifestFileError(f"{path}: is larger than 4 MiB, expected a manifest. Is it the model file?")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise errors.ManifestFileError(
            f"{path}: is not UTF-8 text (byte {error.start}), expected a YAML file. Save it as UTF-8."
        ) from error
    if "\0" in text:
        raise errors.ManifestFileError(f"{path}: is a binary file, expected a YAML file.")
    return text


class _Loader(yaml.SafeLoader):
    """Safe YAML as kubectl reads it: a date is text, `1:30` is no number of minutes, `1e3` is a number."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep=deep)
        except (ValueError, KeyError, IndexError, AttributeError) as error:
            # What PyYAML lets through for a scalar that its own tag contradicts, such as `!!int "x"`.
            problem = f"the value cannot be read as {node.tag.rpartition(':')[2] or node.tag}"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from error


_NOT_READ = frozenset({"timestamp", "value", "int", "float"})
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag.rpartition(":")[2] not in _NOT_READ]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:int",
    re.compile(r"[-+]?(?:0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|0|[1-9][0-9_]*)$"),
    list("-+0123456789"),
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        r"(?:[-+]?(?:[0-9][0-9_]*)(?:\.[0-9_]*)?(?:[eE][-+]?[0-9]+)|[-+]?(?:[0-9][0-9_]*)\.[0-9_]*"
        r"|[-+]?\.[0-9][0-9_]*(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
    ),
    list("-+.0123456789"),
)


def _documents(text: str, source: str) -> Iterator[tuple[Any, yaml.Node]]:
    """Documents that are not empty, each with the node that knows its lines."""
    try:
        loader = _Loader(text)
        try:
            while loader.check_node():
                node = loader.get_node()
                if node is None:
                    break
                _refuse_duplicates(node, source)
                document = loader.construct_document(node)
                if document is not None:
                    yield document, node
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise errors.ManifestFileError(f"{source}: {yaml_words.sentence(error, text)}") from error
    except RecursionError as error:
        raise errors.ManifestFileError(f"{source}: is nested too deeply for a manifest.") from error


def _refuse_duplicates(root: yaml.Node, source: str) -> None:
    """YAML readers silently keep the last of two equal keys."""
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting.extend(node.value)
        elif isinstance(node, yaml.MappingNode):
            lines: dict[str, int] = {}
            for key, value in node.value:
                waiting.append(value)
                line = key.start_mark.line + 1
                if isinstance(key, yaml.ScalarNode) and key.value in lines and key.value != "<<":
                    raise errors.ManifestFileError(
                        f"{source}: line {line}: the key {key.value!r} stands here and on "
                        f"line {lines[key.value]}, expected once. Remove one of them."
                    )
                lines[str(key.value)] = line


def _locator(root: yaml.Node) -> parsing.Locate:
    """The line of a path, or of the last part of it that exists."""

    def locate(loc: describe.Loc) -> int | None:
        node, line = root, root.start_mark.line + 1
        for part in loc:
            if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
                node = node.value[part]
                line = node.start_mark.line + 1
                continue
            pairs = node.value if isinstance(node, yaml.MappingNode) else []
            found = next(((key, value) for key, value in pairs if key.value == str(part)), None)
            if found is None:
                return line
            line, node = found[0].start_mark.line + 1, found[1]
        return line

    return locate


def _same_name_twice(
    services: Sequence[service.InferenceService], lines: Sequence[int | None]
) -> Iterator[errors.Problem]:
    seen: set[tuple[str, str]] = set()
    for item, line in zip(services, lines, strict=True):
        key = (item.namespace, item.name)
        if key in seen:
            yield errors.Problem("metadata.name", item.name, "each name once in a file", "Rename one of the two.", line)
        seen.add(key)
