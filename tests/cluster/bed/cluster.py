"""What tests do with any cluster, the bed's or the one that KUBECONFIG names."""

from __future__ import annotations

import functools
import json
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from bed import errors, machine

Object = dict[str, Any]
Value = TypeVar("Value")

PATIENCE_SECONDS = 240.0
"""For what takes a second or two on an idle machine: other tests, and other work, may take its cores."""
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
"""Labels of a namespace that refuses pods above the restricted Pod Security level."""


@dataclass(frozen=True)
class Cluster:
    """A cluster that this process reaches under the addresses in its kubeconfig."""

    kubeconfig: Path

    @property
    def kubectl_program(self) -> str:
        return "kubectl"

    @property
    def has_controllers(self) -> bool:
        return True

    def environment(self) -> dict[str, str]:
        """For programs that talk to the cluster, whether they are started with `run` or otherwise."""
        return {**machine.environment(), "KUBECONFIG": str(self.kubeconfig)}

    def wrap(self, command: Sequence[str]) -> list[str]:
        """The command as it must be started to run next to the cluster."""
        return list(command)

    def run(
        self, command: Sequence[str], *, stdin: str | None = None, seconds: float = 120.0, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Runs a program next to the cluster, with KUBECONFIG set. Raises `CommandFailed` unless `check` is False."""
        done = subprocess.run(
            self.wrap(command),
            input=stdin,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        if check and done.returncode != 0:
            raise errors.CommandFailed(list(command), done.returncode, done.stdout, done.stderr)
        return done

    def kubectl(self, *arguments: str, stdin: str | None = None, seconds: float = 120.0) -> str:
        """Standard output of kubectl. Raises `CommandFailed`, whose message has what it said."""
        return self.run([self.kubectl_program, *arguments], stdin=stdin, seconds=seconds).stdout

    def apply(self, *objects: Object, namespace: str | None = None) -> None:
        """Server-side apply, under a field manager of the tests' own."""
        where = ("-n", namespace) if namespace else ()
        document = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        self.kubectl("apply", "--server-side", "--field-manager=tests", *where, "-f", "-", stdin=document)

    def get(self, kind: str, name: str, namespace: str | None = None) -> Object | None:
        """None when there is none."""
        where = ("-n", namespace) if namespace else ()
        text = self.kubectl("get", kind, name, *where, "--ignore-not-found", "-o", "json")
        return dict(json.loads(text)) if text else None

    def objects(self, kind: str, namespace: str, selector: str = "") -> list[Object]:
        """All of a kind in a namespace."""
        where = ("-l", selector) if selector else ()
        return list(json.loads(self.kubectl("get", kind, "-n", namespace, *where, "-o", "json"))["items"])

    def until_known(self, *kinds: str) -> None:
        """Until these definitions, as `PLURAL.GROUP`, are established, and kubectl is told of their kinds: the API
        server publishes what it serves a moment later. `kubectl wait` fails where there is no condition yet."""
        for kind in kinds:
            self.eventually(f"{kind} is established", functools.partial(self._is_established, kind))
        wanted = set(kinds)
        self.eventually(f"{', '.join(kinds)} among the kinds", lambda: wanted <= self._kinds())

    def _is_established(self, kind: str) -> bool:
        conditions = (self.get("crd", kind) or {}).get("status", {}).get("conditions") or ()
        return any((item["type"], item["status"]) == ("Established", "True") for item in conditions)

    def _kinds(self) -> set[str]:
        """Of all groups, asked anew; nothing while one of the groups cannot be told."""
        done = self.run([self.kubectl_program, "api-resources", "-o", "name"], check=False)
        return set(done.stdout.split()) if done.returncode == 0 else set()

    def until_allowed(self, account: str, verb: str, resource: str, namespace: str = "") -> None:
        """Until the API server's own copy of the roles has it: a role that was just made does not count at once."""
        where = ("-n", namespace) if namespace else ("--all-namespaces",)
        ask = [self.kubectl_program, "auth", "can-i", verb, resource, *where, f"--as={account}"]
        self.eventually(f"{account} may {verb} {resource}", lambda: self.run(ask, check=False).stdout.strip() == "yes")

    @contextmanager
    def namespace(self, name: str, labels: Mapping[str, str] = RESTRICTED) -> Iterator[str]:
        """A namespace for one test: made and usable, deleted at the end without waiting for it.

        A number is added to the name, so that the same test can run again at once.
        """
        made = f"{name}-{time.time_ns() // 1_000_000 % 10**8}"
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": made, "labels": dict(labels)}})
        try:
            if self.has_controllers:  # they make the account without which the API server refuses every pod
                self.eventually("an account", lambda: self.get("serviceaccount", "default", made))
            yield made
        finally:
            self.kubectl("delete", "namespace", made, "--wait=false", "--ignore-not-found")

    def eventually(self, what: str, ask: Callable[[], Value | None], seconds: float = PATIENCE_SECONDS) -> Value:
        """Asks until the answer is something true, and returns it. Fails the test after so long."""
        end = time.monotonic() + seconds
        while not (answer := ask()):
            if time.monotonic() > end:
                raise AssertionError(f"not within {seconds:.0f} s: {what}; the last answer was {answer!r}")
            time.sleep(0.2)
        return answer
