"""The loop: hand over what clients have sent, turn the wheel once, write down what came; when idle, jump ahead."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tidemark_runtime import errors
from tidemark_runtime.engine import core_engine, messages
from tidemark_runtime.simulation import clients, profiles, recorder, report, senders, sizing, virtual_time, workload
from tidemark_runtime.worker import simulated

Progress = Callable[[float, int, float], None]
"""Share that is done, steps, virtual seconds."""

PROGRESS_EVERY_STEPS = 1000

_TURNS_WITHOUT_WORK = 8
"""So often in a row a turn of the wheel may bring nothing: a sequence that is copied back takes two."""


class SimulationStuck(errors.EngineError):
    """Requests are there, and the engine makes no progress: a mistake of ours. The message holds the state."""


@dataclass(frozen=True, slots=True)
class Result:
    report: report.Report
    record: recorder.Recorder
    """With curves over time, for the plot."""


class Simulation:
    """One run, step by step; `run` does all of them."""

    def __init__(
        self,
        profile: profiles.Profile,
        load: workload.Workload,
        *,
        check_every_steps: int = 0,
        progress: Progress | None = None,
        ended: recorder.TryEnded | None = None,
    ) -> None:
        """`check_every_steps`: how often the engine's sums are checked; 0: at the end only. `ended`: told of every try
        that is over, for what the report does not say. Raises `CapacityError` where the model does not fit,
        `ConfigError`."""
        self._profile = profile
        self._load = load
        self._check_every = check_every_steps
        self._progress = progress
        sized = sizing.size(profile, load.settings)
        self.clock = virtual_time.VirtualClock()
        self.clients = clients.Clients(load, load.seed)
        names = [kind.name for kind in load.classes]
        self.record = recorder.Recorder(names, sized.facts.layout.block_size, ended=ended)
        self.device = virtual_time.VirtualDevice(
            simulated.SimulatedWorker(sized.facts, sized.cost),
            self.clock,
            host_seconds=sized.host_seconds,
            seen=self.record.step,
        )
        self.engine = core_engine.CoreEngine(
            load.settings.scheduler,
            self.device,
            max_context_tokens=sized.facts.max_context_tokens,
            now=self.clock,
            prefix_caching=load.settings.kv_cache.prefix_caching,
        )
        self._num_idle_turns = 0
        self._ended_at = 0.0

    def run(self, *, max_steps: int | None = None) -> Result:
        """Until nobody sends any more and everybody has an answer, or `max_steps` are done. Raises `SimulationStuck`,
        and whatever the engine raises when its sums do not work out."""
        while max_steps is None or self.device.num_steps < max_steps:
            if not self.turn():
                break
        return self.result()

    def turn(self) -> bool:
        """One turn of the wheel, or one jump to the next arrival. False when there is nothing left to do."""
        if self.clients.next_at <= self.clock.now:
            self._hand_over()
        if not self.engine.has_work:
            return self._jump()
        before = self.device.num_steps
        outputs = self.engine.step()
        self._take(outputs)
        step = self.device.num_steps
        if step != before:
            self._num_idle_turns = 0
            self._after_step(step)
            return True
        self._num_idle_turns = 0 if outputs else self._num_idle_turns + 1
        if self._num_idle_turns > _TURNS_WITHOUT_WORK and not self._jump():
            raise SimulationStuck(self._state())
        return True

    def _hand_over(self) -> None:
        """To the engine, what clients have sent up to now."""
        for request, at in self.clients.due(self.clock.now):
            message = self.clients.message(request)
            self.record.sent(request, message.id, at)
            self._take(self.engine.submit([message]))

    def result(self) -> Result:
        """What was found so far. Raises `core.block_pool.PoolCorrupted` when the engine's sums do not work out."""
        self.engine.check_integrity()
        found = report.make(
            names=(self._profile.name, self._load.name),
            seed=self._load.seed,
            seconds=self._ended_at,
            busy_seconds=self.device.busy_seconds,
            steps=self.device.num_steps,
            facts=self.device.facts,
            stats=self.engine.stats(),
            record=self.record,
        )
        return Result(found, self.record)

    def _jump(self) -> bool:
        """To the next arrival; False when there is none."""
        at = self.clients.next_at
        if at == senders.NEVER:
            return False
        self.record.idle(max(0.0, at - self.clock.now))
        self.clock.move_to(at)
        self.record.skip_to(self.clock.now)
        self._num_idle_turns = 0
        return True

    def _take(self, outputs: Iterable[messages.SequenceOutput]) -> None:
        now = self.clock.now
        for output in outputs:
            ended = self.record.output(output, now)
            if ended is None:
                continue
            self._ended_at = now
            comes_back = self.clients.ended(ended.request, output, now, ended.num_tokens)
            if not comes_back and not recorder.was_served(output):
                self.record.gave_up(ended)

    def _after_step(self, step: int) -> None:
        if step % recorder.SAMPLE_EVERY_STEPS == 0:
            self.record.sample(self.engine.stats(), self.clock.now)
        if self._check_every and step % self._check_every == 0:
            self.engine.check_integrity()
        if self._progress is not None and step % PROGRESS_EVERY_STEPS == 0:
            self._progress(self._share_done(), step, self.clock.now)

    def _share_done(self) -> float:
        """As far as the workload says where its end is."""
        if self._load.duration_seconds is not None:
            return min(1.0, self.clock.now / self._load.duration_seconds)
        wanted = sum(kind.num_requests or 0 for kind in self._load.classes)
        sent = sum(entry.requests for entry in self.record.classes.values())
        return min(1.0, sent / wanted) if wanted else 0.0

    def _state(self) -> str:
        stats = self.engine.stats()
        return (
            f"no progress after step {self.device.num_steps} at {self.clock.now:.3f} virtual seconds: "
            f"{stats.requests_running} requests run and {stats.requests_waiting} wait, {stats.pages_used} of "
            f"{stats.pages_total} pages are used"
        )


def run(
    profile: profiles.Profile,
    load: workload.Workload,
    *,
    max_steps: int | None = None,
    check_every_steps: int = 0,
    progress: Progress | None = None,
) -> Result:
    """Simulate all of `load` on `profile`."""
    simulation = Simulation(profile, load, check_every_steps=check_every_steps, progress=progress)
    return simulation.run(max_steps=max_steps)
