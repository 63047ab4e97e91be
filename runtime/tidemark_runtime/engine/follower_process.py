"""The process of a rank that is not the first: load a part of the model, compute what the first rank says.

Started by `followers` as `python -m tidemark_runtime.engine.follower_process`, with a `Launch` on standard input.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pathlib
import signal
import sys
import traceback

import msgspec

from tidemark_runtime import errors
from tidemark_runtime.engine import followers, logs, parent_death
from tidemark_runtime.model import parallel as model_parallel
from tidemark_runtime.model import sources
from tidemark_runtime.worker import (
    device_follower,
    follower,
    parallel,
    process_group,
    rank_links,
    torch_worker,
)


def main() -> int:
    """Exit code 0 after the first rank's last message, 1 after a failure (of which it has been told)."""
    # As the engine process: what reaches the whole process group is the server's matter.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    launch = msgspec.json.decode(sys.stdin.buffer.read(), type=followers.Launch)
    parent_death.end_with_parent(launch.parent_pid)
    folder = pathlib.Path(launch.folder)
    link = rank_links.OtherLink(folder, launch.rank)
    code = 0
    try:
        _run(launch, folder, link)
    except Exception as error:  # noqa: BLE001  the edge: the first rank has been told, and the sockets must be emptied
        if not isinstance(error, errors.TidemarkError):
            traceback.print_exc()
        code = 1
    link.close()
    # Not sys.exit: a thread of a library must not hold the process back.
    with contextlib.suppress(OSError):
        sys.stderr.flush()
    os._exit(code)


def _run(launch: followers.Launch, folder: pathlib.Path, link: rank_links.OtherLink) -> None:
    settings = followers.settings_of(launch)
    logs.set_up(settings.server.log_level)
    source = sources.ModelSource(launch.source_kind, pathlib.Path(launch.source_path), launch.source_name)
    shard = model_parallel.Shard(launch.rank, launch.size)
    group = process_group.of_device(settings.hardware.device, shard, folder)
    if launch.device == "cpu":
        follower.Follower(parallel.Start(settings, source, torch_worker.load), group, link).run()
        return
    load = importlib.import_module(followers.OF_DEVICES).load_rank
    device_follower.DeviceFollower(settings, source, load, group, link).run()


if __name__ == "__main__":
    main()
