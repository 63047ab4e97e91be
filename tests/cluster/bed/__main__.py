"""A real one-node Kubernetes on this machine, by hand: python tests/cluster/bed VERB (as root).

check     says what this machine lacks; ends with 1 when it lacks something
build     builds every program into the cache folder (minutes the first time, nothing after)
up        starts a bed; --api: etcd and API server only; --controllers: the controllers too
run       runs a command inside its network: `run -- kubectl get pods -A`
status    what runs, with its memory
down      stops it; also what a crash left

--name chooses one of several beds. TIDEMARK_TEST_BED is the cache folder (~/.cache/tidemark/test-bed).
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

if not __package__:  # run as a folder or a file: the package is found one above
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bed import build, errors, layout, lifecycle, machine

AUDIT_ALL = {"omitStages": ["RequestReceived"], "rules": [{"level": "Metadata"}]}


def main(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    try:
        return int(VERBS[options.verb](options))
    except errors.BedError as problem:
        print(f"bed: {problem}", file=sys.stderr)
        return 1


def _check(options: argparse.Namespace) -> int:
    found = machine.obstacles(node=True)
    if build.missing() and (obstacle := machine.go_obstacle()):
        found.append(obstacle)
    for obstacle in found:
        print(obstacle)
    return 1 if found else 0


def _packages(options: argparse.Namespace) -> int:
    print(" ".join(machine.missing_packages()))
    return 0


def _build(options: argparse.Namespace) -> int:
    build.build(lambda line: print(f"bed: {line}", flush=True))
    return 0


def _up(options: argparse.Namespace) -> int:
    lifecycle.check_name(options.name)
    _build(options)
    started = time.monotonic()
    wanted = layout.Options(
        size="api" if options.api else "node",
        controllers=options.controllers,
        audit_policy=AUDIT_ALL if options.audit else None,
        devices={"nvidia.com/gpu": options.gpus},
    )
    bed = lifecycle.up(options.name, wanted)
    print(f"bed: {options.name} is up after {time.monotonic() - started:.1f} s. It works from here too:")
    print(f"export KUBECONFIG={bed.kubeconfig}")
    return 0


def _run(options: argparse.Namespace) -> int:
    bed = lifecycle.find(options.name)
    given = options.command[1:] if options.command[:1] == ["--"] else options.command
    command = bed.wrap(given or ["bash"])
    os.execvpe(command[0], command, bed.environment())


def _status(options: argparse.Namespace) -> int:
    for name in layout.names():
        record = layout.load(layout.Layout(name))
        if record is None:
            continue
        living = [part for part, process in record.parts.items() if process.is_alive]
        dead = [part for part in record.parts if part not in living]
        state = "up" if record.is_up and not dead else "not whole" if living else "left behind"
        print(f"{name}: {state}, {record.options.size}, {record.network.block if record.network else 'no network'}")
        if record.is_up:
            for part, size in lifecycle.find(name).resident_bytes().items():
                print(f"  {part:<12} {size / 2**20:6.0f} MiB")
        for part in dead:
            print(f"  {part:<12} ended")
    return 0


def _down(options: argparse.Namespace) -> int:
    started = time.monotonic()
    if lifecycle.down(options.name):
        print(f"bed: {options.name} is gone after {time.monotonic() - started:.1f} s")
    else:
        print(f"bed: there was no bed {options.name!r}")
    return 0


VERBS = {
    "check": _check,
    "packages": _packages,
    "build": _build,
    "up": _up,
    "run": _run,
    "status": _status,
    "down": _down,
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bed", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    verbs.add_parser("check")
    verbs.add_parser("packages", help="Debian packages that this machine lacks, on one line")
    verbs.add_parser("build")
    verbs.add_parser("status")
    up, run, down = verbs.add_parser("up"), verbs.add_parser("run"), verbs.add_parser("down")
    for verb in (up, run, down):
        verb.add_argument("--name", default="default")
    up.add_argument("--api", action="store_true", help="etcd and API server only")
    up.add_argument("--controllers", action="store_true", help="with --api: the controllers too")
    up.add_argument("--audit", action="store_true", help="write audit.jsonl into the bed's folder")
    up.add_argument("--gpus", type=int, default=2, help="nvidia.com/gpu that the node pretends to have (2)")
    run.add_argument("command", nargs=argparse.REMAINDER)
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
