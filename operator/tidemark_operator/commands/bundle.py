"""`tidemark bundle DIR`: everything a site without internet needs, and `--verify`: is it all there, and whole?"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Set
from pathlib import Path
from typing import Annotated, Any

import rich.console
import rich.progress
import typer

from tidemark_operator import errors
from tidemark_operator.commands import bundle_contents, bundle_images, bundle_verify, bundle_write, outputs

EXIT_NOT_SOUND = 1


def command(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Where the bundle is, or is to be: a new or an empty folder")
    ],
    images: Annotated[
        list[Path] | None,
        typer.Option(help="Archive of a container image (oci-archive, docker-archive); may be given more than once"),
    ] = None,
    wheelhouse: Annotated[
        Path | None, typer.Option(help="Folder that scripts/build_wheelhouse.sh filled, to make the images at the site")
    ] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Check the bundle in DIR instead of writing one")] = False,
    output: outputs.OutputOption = outputs.Output.TEXT,
) -> None:
    """Write chart, CRD, images or wheels, Containerfiles and pages into DIR, with checksums."""
    if verify:
        if images or wheelhouse:
            raise errors.ManifestFileError(
                "--verify: got --images or --wheelhouse, expected DIR alone: a bundle says itself what is in it"
            )
        _verify(folder, output)
    else:
        _write(folder, images or [], wheelhouse, output)


def _write(folder: Path, archives: list[Path], wheelhouse: Path | None, output: outputs.Output) -> None:
    bundle_write.check_free(folder)  # before minutes are spent on reading archives
    if wheelhouse is not None and not wheelhouse.is_dir():
        raise errors.ManifestFileError(
            f"--wheelhouse: {wheelhouse} is no folder; fill one with scripts/build_wheelhouse.sh"
        )
    with _progress_bar() as progress:
        contents = bundle_contents.collect(archives, wheelhouse, progress)
        bundle_write.write(folder, contents, progress)
    size_bytes = sum(item.size_bytes for item in contents.items)
    wheels = bundle_contents.wheels_of(contents.items)
    warnings = [_lacking(image, wheels) for image in contents.images if image.archive is None]
    if output is outputs.Output.JSON:
        _print_json(
            {
                "path": str(folder),
                "version": contents.chart.app_version,
                "num_files": len(contents.items),
                "size_bytes": size_bytes,
                "images": [image.entry() for image in contents.images],
                "warnings": warnings,
            }
        )
        return
    for warning in warnings:
        typer.echo(f"warning: {warning}", err=True)
    typer.echo(
        f"{folder}: Tidemark {contents.chart.app_version}, {len(contents.items)} files, {_megabytes(size_bytes)}"
    )
    typer.echo(f"Check it after every copy: tidemark bundle --verify {folder}")


def _lacking(image: bundle_images.Image, wheels: Set[str]) -> str:
    has_wheels = {"operator": "operator", "engine": "runtime"}.get(image.component or "") in wheels
    where = "the site makes it from wheels/" if has_wheels else "the site must have it already, or get --images FILE"
    return f"no archive of {image.image} is in the bundle: {where}"


def _verify(folder: Path, output: outputs.Output) -> None:
    with _progress_bar() as progress:
        report = bundle_verify.verify(folder, progress)
    if output is outputs.Output.JSON:
        _print_json(
            {
                "path": str(folder),
                "ok": not report.problems,
                "num_files": report.num_files,
                "size_bytes": report.size_bytes,
                "problems": list(report.problems),
            }
        )
    elif report.problems:
        typer.echo(f"{folder}: {len(report.problems)} problem{'s' if len(report.problems) > 1 else ''}")
        for problem in report.problems:
            typer.echo(f"  {problem}")
    else:
        typer.echo(f"{folder}: all {report.num_files} files are as written, {_megabytes(report.size_bytes)}")
    if report.problems:
        raise typer.Exit(EXIT_NOT_SOUND)


def _megabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:.1f} MB"


def _print_json(values: dict[str, Any]) -> None:
    typer.echo(json.dumps(values, indent=2, ensure_ascii=False))


@contextlib.contextmanager
def _progress_bar() -> Iterator[bundle_contents.Progress]:
    """A bar on standard error; nothing where that is not a terminal."""
    console = rich.console.Console(stderr=True)
    columns = (
        rich.progress.TextColumn("{task.description}"),
        rich.progress.BarColumn(),
        rich.progress.DownloadColumn(),
        rich.progress.TimeRemainingColumn(),
    )
    with rich.progress.Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("starting", total=None)
        yield lambda what, done, total: bar.update(task, description=what, completed=done, total=total or None)
