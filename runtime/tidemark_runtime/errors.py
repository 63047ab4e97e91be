"""Every exception the runtime raises on purpose.

    TidemarkError
    ├── ConfigError            a setting is wrong; carries every problem found, not only the first
    ├── ModelError
    │   ├── ModelNotFound      no such file, folder or known name
    │   ├── UnsupportedModel   a file, tensor type, architecture or rope variant we do not run
    │   └── CorruptModel       the file is not what it says it is
    ├── CapacityError          the arithmetic says it does not fit
    ├── KernelError
    │   ├── KernelPathError    an op runs on another path than planned, and hardware.strictKernels forbids that
    │   └── SelfTestFailed     an op gives wrong numbers on this machine
    ├── RequestError           one client's request is wrong or cannot be served; becomes one HTTP answer
    │   ├── InvalidRequest     400
    │   ├── ContextTooLong     400, code context_length_exceeded
    │   ├── NeverFits          400, code exceeds_kv_capacity
    │   ├── Unauthorized       401
    │   ├── NotAllowed         403, code priority_not_allowed
    │   ├── UnknownModel       404
    │   ├── RestartRequired    409, carries the settings that differ
    │   ├── BodyTooSlow        408
    │   ├── BodyTooLarge       413
    │   └── Overloaded         429, carries Retry-After
    └── EngineError
        ├── OutOfMemory        an allocation failed; a step that did may be followed by others that do not
        ├── EngineDead         the engine process has ended
        ├── RankLost           one of several ranks that share a model has ended, or does not answer
        ├── NotConfirmed       503, the engine has not answered to new settings yet
        └── Draining           503, the server is going away

They are translated at the edges only: HTTP status in `server`, exit code in `commands`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


class TidemarkError(Exception):
    """Base of everything raised on purpose; `str(error)` is fit for a user to read."""


class Seen(str):
    """What was seen, in words that are shown as they are: without quotation marks around them."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


@dataclass(frozen=True, slots=True)
class Problem:
    """One wrong value: which key, what was seen, what was expected, what to do."""

    key: str
    seen: object
    expected: str
    remedy: str = ""

    def __str__(self) -> str:
        sentence = f"{self.key}: got {self.seen!r}, expected {self.expected}"
        return f"{sentence}. {self.remedy}" if self.remedy else sentence


class ConfigError(TidemarkError):
    """One or more settings are wrong; `problems` holds all of them."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class ModelError(TidemarkError):
    """The model cannot be used."""


class ModelNotFound(ModelError):
    """Neither a file, nor a folder, nor a model we know by name."""


class UnsupportedModel(ModelError):
    """The model needs something this engine does not have; the message names it."""


class CorruptModel(ModelError):
    """The file ends early, or its contents contradict its header or checksum."""


class CapacityError(TidemarkError):
    """The memory arithmetic does not work out; the message holds the sum."""


class KernelError(TidemarkError):
    """What computes is not what should; the message names each op."""


class KernelPathError(KernelError):
    """An op runs on another path than planned, and `hardware.strictKernels` forbids that."""


class SelfTestFailed(KernelError):
    """An op gives other numbers than its reference on this machine."""


class RequestError(TidemarkError):
    """A request that gets an error answer. `status`, `kind` and `code` follow OpenAI's error object."""

    status = 400
    kind = "invalid_request_error"
    code: str | None = None

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        if code is not None:
            self.code = code


class InvalidRequest(RequestError):
    """The request itself is wrong; `param` names the field."""


class ContextTooLong(RequestError):
    """Prompt plus wanted output exceed the context length; the message has both numbers."""

    code = "context_length_exceeded"


class NeverFits(RequestError):
    """The request would need more KV pages than the whole slab has; waiting cannot help."""

    code = "exceeds_kv_capacity"


class Unauthorized(RequestError):
    """No key, or one that is not in the key file."""

    status = 401
    kind = "authentication_error"
    code = "invalid_api_key"


class NotAllowed(RequestError):
    """The request asks for more priority than its API key may have; the message has both numbers."""

    status = 403
    kind = "permission_error"
    code = "priority_not_allowed"


class UnknownModel(RequestError):
    """The request names a model this server does not serve."""

    status = 404
    kind = "not_found_error"
    code = "model_not_found"


class RestartRequired(RequestError):
    """The configuration sent differs in settings that only a new process can change."""

    status = 409
    code = "restart_required"

    def __init__(self, changes: Mapping[str, tuple[object, object]]) -> None:
        """`changes`: key -> (running value, wanted value)."""
        self.changes = dict(changes)
        listed = ", ".join(
            f"{key} ({running!r} runs, {wanted!r} is wanted)" for key, (running, wanted) in changes.items()
        )
        super().__init__(
            f"Only a new process can change {listed}. Nothing was changed. Start the engine again with this "
            "configuration, or send one that leaves these as they run."
        )


class BodyTooSlow(RequestError):
    """The client took longer to send the request body than it may."""

    status = 408
    code = "body_timeout"


class BodyTooLarge(RequestError):
    """The request body is larger than the configured limit."""

    status = 413
    code = "body_too_large"


class Overloaded(RequestError):
    """Too much is asked for at once, by all or by this client; try again in `retry_after_seconds`."""

    status = 429
    kind = "rate_limit_error"
    code = "overloaded"

    def __init__(self, message: str, *, retry_after_seconds: float = 1.0, code: str | None = None) -> None:
        super().__init__(message, code=code)
        self.retry_after_seconds = retry_after_seconds


class EngineError(TidemarkError):
    """The engine, not the request, is at fault."""


class OutOfMemory(EngineError):
    """Memory ran out: an allocation was refused."""


class EngineDead(EngineError):
    """The engine process has ended or stopped answering."""


class RankLost(EngineError):
    """Another rank of the model has left, has ended or does not come; nothing is computed without it."""


class Draining(EngineError):
    """The server finishes what it has and takes nothing new."""


class NotConfirmed(EngineError):
    """The engine has been given new settings and has not confirmed them yet."""
