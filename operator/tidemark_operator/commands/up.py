"""`tidemark up FILE`: an InferenceService on this machine, by the same reconcile loop as on a cluster."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging.handlers
import secrets as secrets_
import signal
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import rich.console
import typer

from tidemark_operator import api, errors, names, plan
from tidemark_operator import settings as settings_
from tidemark_operator.cluster import clock as clock_
from tidemark_operator.cluster import interface
from tidemark_operator.cluster.local import backend, control, files, translate
from tidemark_operator.commands import documents, model_fetch, up_inputs, up_machine, up_session, up_view
from tidemark_operator.reconcile import loop, reconciler
from tidemark_runtime.contract import settings as settings_contract

_FILE_POLL_SECONDS = 0.5
_LOG_BYTES = 1 << 20
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line says, and what tests put in its place."""

    file: Path
    port: int = 8000
    secrets: Mapping[str, Path] = dataclasses.field(default_factory=dict)
    config_maps: Mapping[str, Path] = dataclasses.field(default_factory=dict)
    exit_on_failure: bool = False
    root: Path = dataclasses.field(default_factory=files.root)
    programs: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=lambda: translate.PROGRAMS)
    local: settings_.LocalSettings = dataclasses.field(default_factory=settings_.LocalSettings)
    num_cores: int = dataclasses.field(default_factory=up_machine.num_cores)


def command(
    file: Annotated[Path, typer.Argument(help="Manifest with one InferenceService")],
    port: Annotated[
        int, typer.Option(help="Port of 127.0.0.1 that clients use; 0 takes a free one", min=0, max=65_535)
    ] = 8000,
    secret: Annotated[
        list[str] | None,
        typer.Option(help="NAME=FILE: a Secret that the manifest names, such as access.apiKeysSecretRef"),
    ] = None,
    configmap: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=FILE: the precision map that kvCache.precision.mapRef names; read at an engine's start"
        ),
    ] = None,
    exit_on_failure: Annotated[
        bool, typer.Option("--exit-on-failure", help="End with 1 at the first problem instead of trying again")
    ] = False,
) -> None:
    """Run an InferenceService manifest on this machine, no cluster needed. Ctrl-C ends it and everything it started."""
    options = Options(
        file=file,
        port=port,
        secrets=parse_secrets(secret or ()),
        config_maps=up_inputs.parse_pairs("--configmap", configmap or (), "found=./map.yaml"),
        exit_on_failure=exit_on_failure,
    )
    raise typer.Exit(asyncio.run(run(options)))


def parse_secrets(pairs: Sequence[str]) -> dict[str, Path]:
    """`NAME=FILE` each. Raises `ManifestFileError`."""
    return up_inputs.parse_pairs("--secret", pairs, "keys=./keys.txt")


async def run(options: Options) -> int:
    """Until a signal, a failure of our own, or with `exit_on_failure` one of the service. Returns the exit code.

    Raises `OperatorError` when it cannot start: wrong manifest, name taken, port taken, model not to be had.
    """
    service = _the_service(options.file)
    secrets = {name: up_inputs.secret(path) for name, path in options.secrets.items()}
    config_maps = {name: up_inputs.config_map(path) for name, path in options.config_maps.items()}
    folder = files.ServiceFolder(options.root, service.name)
    folder.acquire()
    try:
        with _log_to(folder.path / "operator.log"), _signals() as signals:
            async with backend.LocalCluster(
                folder, options.port, settings=options.local, programs=options.programs
            ) as cluster:
                up = _Up(options, service, (secrets, config_maps), folder, cluster, signals)
                return await up.run()
    finally:
        folder.release()


class _Up:
    """One run, from a parsed manifest and an open port to the end of the last process."""

    def __init__(
        self,
        options: Options,
        service: api.InferenceService,
        inputs: tuple[Mapping[str, Mapping[str, bytes]], Mapping[str, Mapping[str, str]]],
        folder: files.ServiceFolder,
        cluster: backend.LocalCluster,
        signals: asyncio.Queue[int],
    ) -> None:
        self._options = options
        self._service = service
        self._secrets, self._config_maps = inputs
        self._folder = folder
        self._cluster = cluster
        self._signals = signals
        self._key = interface.Key(names.KIND, service.namespace, service.name)
        self._facts = plan.Facts(image="local")
        self._fetch = model_fetch.Fetcher(options.programs)
        self._session = up_session.Session(cluster, self._key, self._facts, folder.logs, self._fetch, options.num_cores)
        self._view = up_view.View(rich.console.Console(highlight=False), service.name)

    async def run(self) -> int:
        seen = _fingerprint(self._options.file)
        if await self._until_signal(self._fetch.ensure(self._service)) is not None:
            return 0
        with self._view:
            for name, data in self._secrets.items():
                self._session.put_secret(name, data)
            for name, texts in self._config_maps.items():
                self._session.put_config_map(name, texts)
            await self._session.submit(documents.document_of(self._service))
            clock = clock_.SystemClock()
            token = secrets_.token_hex(32)
            work = reconciler.Reconciler(
                self._cluster,
                self._facts,
                tokens=lambda _uid: token,
                settings=settings_.ReconcileSettings(read_map_seconds=0.0),  # here it costs no request
                clock=clock,
                local=True,
            )
            loop_ = loop.Loop(self._cluster, work, self._key.namespace, settings=settings_.QueueSettings(), clock=clock)
            app = control.application(self._session.overview, self._submit)
            failed = await self._until_signal(
                self._follow_status(),
                loop_.run(),
                control.serve(self._folder.socket, app),
                self._follow_files(seen),
                self._cluster.failed(),
            )
            await self._stop()
            return 1 if failed is None else 0

    async def _until_signal(self, *work: Coroutine[Any, Any, None]) -> int | None:
        """Work until the first of it is done, or a signal comes: its number. What is left is cancelled."""
        tasks = [asyncio.ensure_future(item) for item in work]
        waiting = asyncio.ensure_future(self._signals.get())
        everything: set[asyncio.Future[Any]] = {waiting, *tasks}
        try:
            await asyncio.wait(everything, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
            return waiting.result() if waiting.done() else None
        finally:
            for item in everything:
                item.cancel()
            await asyncio.gather(*everything, return_exceptions=True)

    async def _stop(self) -> None:
        self._view.stopping(self._service.spec.rollout.drain_seconds)
        await self._until_signal(self._cluster.drain())

    async def _submit(self, document: dict[str, Any]) -> dict[str, Any]:
        answer = await self._session.submit(document)
        self._view.submitted("tidemark apply", answer)
        return answer

    async def _follow_status(self) -> None:
        """Show every status. Ends when the service has a problem and `exit_on_failure` was asked for."""
        async for event in self._cluster.watch(names.KIND, self._key.namespace):
            self._view.warnings(self._session.machine_warnings(event.object))
            self._view.status(event.object, self._log_with_problem())
            conditions = (event.object.get("status") or {}).get("conditions") or ()
            degraded = any(item["type"] == "Degraded" and item["status"] == "True" for item in conditions)
            if degraded and self._options.exit_on_failure:
                return

    def _log_with_problem(self) -> Path | None:
        for pod in self._cluster.objects.list("Pod", self._key.namespace):
            for container in (pod.get("status") or {}).get("containerStatuses") or ():
                if container["lastState"]:
                    return files.log_of(self._folder.logs, pod["metadata"]["name"])
        return None

    async def _follow_files(self, seen: object) -> None:
        """Take over every edit of the manifest and of the other files; one that is wrong changes nothing."""
        inputs = [(name, path, self._take_over_secret) for name, path in self._options.secrets.items()]
        inputs += [(name, path, self._take_over_config_map) for name, path in self._options.config_maps.items()]
        seen_inputs = [_fingerprint(path) for _, path, _ in inputs]
        while True:
            await asyncio.sleep(_FILE_POLL_SECONDS)
            now = _fingerprint(self._options.file)
            if now != seen:
                seen = now
                await self._take_over()
            for index, (name, path, take_over) in enumerate(inputs):
                now = _fingerprint(path)
                if now != seen_inputs[index]:
                    seen_inputs[index] = now
                    take_over(name, path)

    async def _take_over(self) -> None:
        try:
            service = _the_service(self._options.file)
            self._view.submitted(str(self._options.file), await self._session.submit(documents.document_of(service)))
        except errors.OperatorError as error:
            self._view.problem(f"{error}\nNothing is changed; what ran before goes on.")

    def _take_over_secret(self, name: str, path: Path) -> None:
        try:
            self._session.put_secret(name, up_inputs.secret(path))
        except errors.OperatorError as error:
            self._view.problem(f"{error}\nThe keys that were read before go on.")

    def _take_over_config_map(self, name: str, path: Path) -> None:
        try:
            self._session.put_config_map(name, up_inputs.config_map(path))
        except (errors.OperatorError, settings_contract.ConfigError) as error:
            self._view.problem(f"{error}\nWhat was read before goes on.")


def _the_service(file: Path) -> api.InferenceService:
    services = api.load_file(file)
    if len(services) != 1:
        listed = ", ".join(service.name for service in services)
        raise errors.ManifestFileError(
            f"{file}: got {len(services)} InferenceServices ({listed}), expected one. "
            "Put each into a file of its own and start one `tidemark up` for each"
        )
    return services[0]


def _fingerprint(path: Path) -> object:
    """Changes when the file does, or a file of the folder; editors replace a file, so its inode counts as well."""
    try:
        stat = path.stat()
        inside = sorted(path.iterdir()) if path.is_dir() else []
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino, [(item.name, _fingerprint(item)) for item in inside]


@contextlib.contextmanager
def _signals() -> Iterator[asyncio.Queue[int]]:
    """Signals as they come, instead of what they usually do."""
    running = asyncio.get_running_loop()
    queue: asyncio.Queue[int] = asyncio.Queue()
    numbers = [number for number in _SIGNALS if not (number == signal.SIGHUP and _ignored(number))]  # nohup
    for number in numbers:
        running.add_signal_handler(number, queue.put_nowait, number)
    try:
        yield queue
    finally:
        for number in numbers:
            running.remove_signal_handler(number)


def _ignored(number: int) -> bool:
    return signal.getsignal(number) is signal.SIG_IGN


class _LogFile(logging.handlers.RotatingFileHandler):
    """A full disk loses lines of the log; it does not put tracebacks on the screen."""

    def handleError(self, record: logging.LogRecord) -> None:
        pass


@contextlib.contextmanager
def _log_to(path: Path) -> Iterator[None]:
    """Our own log lines go to a file: the screen belongs to the view."""
    handler = _LogFile(path, maxBytes=_LOG_BYTES, backupCount=1, delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.close()
