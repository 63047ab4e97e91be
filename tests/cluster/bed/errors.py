"""What can go wrong with the bed.

BedError
├── BuildError        a program could not be built
├── MachineError      this machine cannot run a bed, or lacks something
├── NameTaken         a bed of that name runs already
├── StartFailed       a part did not come up; the message ends with its last log lines
└── CommandFailed     a command that was run against the cluster failed
"""

from __future__ import annotations


class BedError(Exception):
    """The message is for the developer at the terminal: what happened and what to do."""


class BuildError(BedError):
    pass


class MachineError(BedError):
    pass


class NameTaken(BedError):
    pass


class StartFailed(BedError):
    pass


class CommandFailed(BedError):
    def __init__(self, command: list[str], code: int, stdout: str, stderr: str) -> None:
        super().__init__(f"`{' '.join(command)}` ended with {code}:\n{stderr or stdout}")
        self.code, self.stdout, self.stderr = code, stdout, stderr
