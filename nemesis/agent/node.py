"""One node as the agent of its host sees it: a process, a disk, a network namespace, a skew file."""

import contextlib
import os
import select
import signal
import struct
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nemesis.agent import state
from nemesis.agent.disks.disk import NodeDisk
from nemesis.agent.disks.tracing import Tracer
from nemesis.agent.errors import AgentError
from nemesis.agent.packets.namespace import Namespace
from nemesis.agent.processes import signals
from nemesis.agent.processes.groups import OwnGroup
from nemesis.agent.processes.signals import ProcessId, SlowCpu
from nemesis.agent.processes.threads import StoppedThreads

SKEW_FILE = "skew"
_SKEW = struct.Struct("<qqq")
"""base_ns, offset_ns, rate_ppb, as the real clock of the reference system reads them."""

Response = dict[str, Any]


class AgentNode:
    """Everything the agent knows about one node. Mutable.

    Args:
        name: The node's name.
        run: State directory of the run.
        addresses: IPv4 addresses that only this node has.
        emit: Takes events.

    Attributes:
        directory: The folder that the node's container may see; the disk is mounted at `disk/` in it.
        log_dir: The folder that survives power cuts: event log, output, skew file.
        process: The process that is watched.
        exit_code: How it ended, if it was this agent's child.
    """

    COMMANDS = (
        "status",
        "end_process",
        "pause",
        "resume",
        "oom",
        "slow_cpu",
        "cpu_restore",
        "cpu_evidence",
        "stop_threads",
        "threads_evidence",
        "resume_threads",
        "skew",
        "write_beside",
        "strobe",
        "strobe_end",
        "wipe",
        "fill",
        "unfill",
        "freeze_disk",
        "thaw_disk",
        "trace",
        "trace_evidence",
        "trace_end",
        "disk_dies",
        "disk_revives",
        "remount",
        "flip_bit",
        "truncate_file",
        "probe_write",
        "list_files",
        "read_disk",
        "format_disk",
    )

    def __init__(
        self,
        name: str,
        run: Path,
        addresses: list[str],
        *,
        emit: Callable[[Response], None],
    ) -> None:
        self.name = name
        self.run = run
        self.addresses = addresses
        self.directory = run / state.NODES_FOLDER / name
        self.log_dir = run / state.LOGS_FOLDER / name
        self.log_dir.mkdir(parents=True, exist_ok=True)
        self.process = ProcessId(pid=0, began=0)
        self.exit_code: int | None = None
        self.disk_or_none: NodeDisk | None = None
        self._emit = emit
        self._namespace: Namespace | None = None
        self._slow: SlowCpu | None = None
        self._stopped_threads: StoppedThreads | None = None
        self._tracer: Tracer | None = None
        self._strobe: _Strobe | None = None
        self._group: OwnGroup | None = None
        self._lock = threading.RLock()

    # -- parts

    @property
    def disk(self) -> NodeDisk:
        """The node's disk."""
        if self.disk_or_none is None:
            raise AgentError(f"{self.name} has no separate disk here")
        return self.disk_or_none

    @property
    def net(self) -> Namespace:
        """The node's network namespace."""
        if self._namespace is None:
            raise AgentError(f"{self.name} has no network namespace yet")
        return self._namespace

    def make_disk(self, filesystem: str, size_mib: int) -> None:
        """Makes and mounts the disk; does nothing if it exists."""
        if self.disk_or_none is None:
            self.disk_or_none = NodeDisk.create(
                self.directory, filesystem=filesystem, size_mib=size_mib
            )
        (self.directory / "disk" / "data").mkdir(exist_ok=True)

    def enter_namespace(self, pid: int | None) -> None:
        """Attaches to the network namespace of a process, or to the agent's own."""
        if self._namespace is not None:
            self._namespace.close()
        self._namespace = Namespace(pid)

    def watch(self, pid: int) -> Response:
        """Watches the node's process; its end is reported as an event."""
        self.exit_code = None
        self.process = signals.identify(pid)
        state.record_process(self.run, self.name, self.process)
        descriptor = os.pidfd_open(pid)
        threading.Thread(
            target=self._wait_for_end, args=(self.process, descriptor, None), daemon=True
        ).start()
        return {"pid": pid, "began": self.process.began}

    def spawn(self, argv: list[str], env: dict[str, str], output: Path) -> Response:
        """Starts the node's process on this host, in a new session."""
        with open(output, "ab") as log:
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **env},
                start_new_session=True,
            )
        self.exit_code = None
        try:
            self.process = signals.identify(child.pid)
        except signals.ProcessError:  # it has ended already
            self.exit_code = child.wait()
            return {"pid": 0, "began": 0}
        state.record_process(self.run, self.name, self.process)
        self._join_group(child.pid)
        descriptor = os.pidfd_open(child.pid)
        threading.Thread(
            target=self._wait_for_end, args=(self.process, descriptor, child), daemon=True
        ).start()
        return {"pid": child.pid, "began": self.process.began}

    def _join_group(self, pid: int) -> None:
        """Moves the process to a new control group, where groups can be made."""
        with contextlib.suppress(OSError):
            if self._group is None:
                self._group = OwnGroup(f"laststand-{self.run.name}-{self.name}")
                state.record_groups(self.run, self._group.paths)
            self._group.join(pid)

    def _wait_for_end(
        self, process: ProcessId, descriptor: int, child: "subprocess.Popen[bytes] | None"
    ) -> None:
        try:
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            poll.poll()
        finally:
            os.close(descriptor)
        at_ns = time.monotonic_ns()
        code = child.wait() if child is not None else None
        if self.process == process:
            self.exit_code = code
        self._emit(
            {
                "event": "exited",
                "node": self.name,
                "pid": process.pid,
                "at_ns": at_ns,
                "exit_code": code,
            }
        )

    # -- the process

    def status(self) -> Response:
        """Returns whether the process is alive, its state and its CPU time."""
        return {
            "alive": self.process.is_alive,
            "pid": self.process.pid,
            "exit_code": self.exit_code,
            **signals.standstill(self.process),
        }

    def end_process(self, how: str, limit_s: float = signals.END_LIMIT_S) -> Response:
        """Ends the process: "stop" (SIGTERM, and SIGKILL when time is up) or "kill" (SIGKILL)."""
        process = self.process
        if not process.is_alive:
            return {"was_alive": False, "in_time": True}
        in_time = True
        if how == "stop":
            signals.send(process, signal.SIGTERM)
            signals.thaw(process)
            in_time = signals.wait_gone(process, limit_s)
        if how == "kill" or not in_time:
            self._kill(process)
        return {"was_alive": True, "in_time": in_time, "pid": process.pid}

    def _kill(self, process: ProcessId) -> None:
        self.thaw_disk()  # a process on a frozen disk cannot end
        signals.send(process, signal.SIGKILL)
        if not signals.wait_gone(process):
            raise AgentError(f"{self.name}'s process {process.pid} does not end")

    def pause(self) -> Response:
        """Stops the process with SIGSTOP."""
        is_stopped = signals.freeze(self.process)
        return {"stopped": is_stopped, "pid": self.process.pid, **self.status()}

    def resume(self, pid: int = 0) -> Response:
        """Resumes the process; only the given one, if a pid is given."""
        if pid and pid != self.process.pid:
            return {"resumed": False}
        return {"resumed": signals.thaw(self.process)}

    def oom(self) -> Response:
        """Lets the kernel kill the process, out of memory."""
        return signals.oom_kill(self.process)

    def slow_cpu(self, percent: int) -> Response:
        """Limits the process to a percentage of one core."""
        with self._lock:
            if self._slow is not None:
                raise AgentError(f"{self.name} is slow already")
            self._slow = SlowCpu(self.process, percent)
            return self._slow.evidence()

    def cpu_evidence(self) -> Response:
        """Returns how often the process was throttled."""
        slow = self._slow
        return slow.evidence() if slow is not None else {"throttled": 0}

    def cpu_restore(self) -> Response:
        """Removes the CPU limit; returns the last evidence."""
        with self._lock:
            slow, self._slow = self._slow, None
        if slow is None:
            return {"throttled": 0}
        evidence = slow.evidence()
        slow.end()
        return evidence

    def stop_threads(self, pattern: str) -> Response:
        """Stops the threads of the process whose names match; the others go on."""
        with self._lock:
            if self._stopped_threads is not None:
                raise AgentError(f"{self.name} has stopped threads already")
            self._stopped_threads = StoppedThreads(self.process, pattern)
            return self._stopped_threads.evidence()

    def threads_evidence(self) -> Response:
        """Returns whether the threads that were stopped have done anything since."""
        stopped = self._stopped_threads
        return stopped.evidence() if stopped is not None else {"stood_still": False}

    def resume_threads(self) -> Response:
        """Resumes the threads; returns the last evidence."""
        with self._lock:
            stopped, self._stopped_threads = self._stopped_threads, None
        if stopped is None:
            return {"stood_still": False}
        evidence = stopped.evidence()
        stopped.end()
        return evidence

    # -- the clock

    def skew(self, offset_ns: int = 0, rate_ppb: int = 0) -> Response:
        """Skews the node's clock from now on; without arguments, heals it."""
        data = _SKEW.pack(time.monotonic_ns(), offset_ns, rate_ppb)
        descriptor = os.open(self.log_dir / SKEW_FILE, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            os.pwrite(descriptor, data, 0)
        finally:
            os.close(descriptor)
        return {"at_ns": time.monotonic_ns()}

    def write_beside(self, file: str, text: str) -> Response:
        """Replaces a file beside the node's files; the node sees the old content or the new one."""
        if "/" in file or file.startswith("."):
            raise AgentError(f"{file!r} is not the name of a file")
        made = self.log_dir / f"{file}.new"
        made.write_text(text, encoding="utf-8")
        os.replace(made, self.log_dir / file)
        return {}

    def strobe(self, offset_ns: int, period_ms: int) -> Response:
        """Starts moving the wall clock back and forth."""
        with self._lock:
            if self._strobe is not None:
                raise AgentError(f"{self.name}'s clock is strobing already")
            self._strobe = _Strobe(self, offset_ns, period_ms)
        return {}

    def strobe_end(self) -> Response:
        """Ends the strobe; returns how often the clock was set back."""
        with self._lock:
            strobe, self._strobe = self._strobe, None
        return {"backward_jumps": strobe.end() if strobe is not None else 0}

    # -- the disk

    def wipe(self) -> Response:
        """Replaces the disk with an empty one; the process must have ended."""
        self._must_be_down("wipe its disk")
        evidence = self.disk.wipe()
        (self.directory / "disk" / "data").mkdir(exist_ok=True)
        return evidence

    def fill(self, free_bytes: int) -> Response:
        """Fills the disk."""
        return self.disk.fill(free_bytes)

    def unfill(self) -> Response:
        """Removes what filled the disk."""
        self.disk.unfill()
        return {}

    def freeze_disk(self, watchdog_s: float) -> Response:
        """Makes every write wait."""
        return self.disk.freeze(watchdog_s)

    def thaw_disk(self) -> Response:
        """Lets writes continue."""
        return self.disk_or_none.thaw() if self.disk_or_none is not None else {}

    def trace(self, inject: str, every: int = 1, delay_ms: float = 0) -> Response:
        """Makes fsyncs fail or slow, with a tracer."""
        with self._lock:
            if self._tracer is not None:
                raise AgentError(f"{self.name} is being traced already")
            tracer = Tracer()
            tracer.start(self.process.pid, inject=inject, every=every, delay_ms=delay_ms)
            self._tracer = tracer
        return tracer.evidence()

    def trace_evidence(self) -> Response:
        """Returns how many calls were hit."""
        tracer = self._tracer
        return tracer.evidence() if tracer is not None else {"calls": 0}

    def trace_end(self) -> Response:
        """Detaches the tracer; returns the last evidence."""
        with self._lock:
            tracer, self._tracer = self._tracer, None
        if tracer is None:
            return {"calls": 0}
        tracer.stop()
        return tracer.evidence()

    def disk_dies(self) -> Response:
        """Shuts the file system down below the running process: every later call fails with EIO."""
        self.disk.shutdown()
        return {}

    def disk_revives(self) -> Response:
        """Ends the process and mounts the file system again."""
        self.end_process("kill")
        self.disk.unmount()
        self.disk.mount()
        return {}

    def remount(self, read_only: bool) -> Response:
        """Mounts the disk again, read-only or not; the process must have ended."""
        self._must_be_down("mount its disk again")
        self.disk.unmount()
        self.disk.mount(read_only=read_only)
        return {"read_only": read_only, "probe": self.probe_write()}

    def flip_bit(self, seed: int) -> Response:
        """Flips one bit of a log; the process must have ended."""
        self._must_be_down("flip a bit")
        return self.disk.flip_bit(seed)

    def truncate_file(self, size: int) -> Response:
        """Cuts bytes off the end of the largest partition log; the process must have ended."""
        self._must_be_down("cut a file")
        return self.disk.truncate_file(size)

    def list_files(self, directory: str) -> Response:
        """Returns the names in a directory of the node's files; none if it does not exist."""
        return self.disk.list_files(directory)

    def format_disk(self, files: dict[str, str]) -> Response:
        """Writes these files to the disk if it has none; paths to base64."""
        return self.disk.format(files)

    def read_disk(self, path: str, offset: int, length: int) -> Response:
        """Returns bytes of one of the node's files."""
        return self.disk.read_bytes(path, offset, length)

    def probe_write(self) -> Response:
        """Tries to write to the disk; returns the error, "" if there was none."""
        if self.disk_or_none is not None and self.disk_or_none.is_frozen:
            return {"error": "", "errno": 0, "why": "the disk is stuck, and nothing was tried"}
        path = self.directory / "disk" / ".probe"
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                os.write(descriptor, b"x" * 8192)
            finally:
                os.close(descriptor)
            path.unlink()
        except OSError as error:
            with contextlib.suppress(OSError):
                path.unlink()
            return {"error": os.strerror(error.errno or 0), "errno": error.errno}
        return {"error": "", "errno": 0}

    def _must_be_down(self, what: str) -> None:
        if self.process.is_alive:
            raise AgentError(f"{self.name} is alive; end it before you {what}")

    # -- end

    def heal_host(self) -> None:
        """Undoes what would outlive the agent and harm the host; files and processes stay."""
        for undo in (
            self.trace_end,
            self.strobe_end,
            self.cpu_restore,
            self.resume_threads,
            self.thaw_disk,
            self.resume,
            self.skew,
        ):
            with contextlib.suppress(Exception):
                undo()
        if self._namespace is not None:
            with contextlib.suppress(Exception):
                self._namespace.close()
            self._namespace = None

    def destroy(self) -> None:
        """Removes the node from the host."""
        self.heal_host()
        with contextlib.suppress(Exception):
            self.end_process("kill")
        if self.disk_or_none is not None:
            with contextlib.suppress(Exception):
                self.disk_or_none.destroy()
            self.disk_or_none = None


class _Strobe:
    """Moves a node's wall clock back and forth until it is ended."""

    def __init__(self, node: AgentNode, offset_ns: int, period_ms: int) -> None:
        self._node = node
        self._offset_ns = offset_ns
        self._half_s = max(period_ms, 2) / 2000
        self._jumps_back = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        is_away = False
        while not self._is_over.wait(self._half_s):
            is_away = not is_away
            self._node.skew(self._offset_ns if is_away else 0)
            if is_away == (self._offset_ns < 0):
                self._jumps_back += 1
        self._node.skew()

    def end(self) -> int:
        self._is_over.set()
        self._thread.join()
        return self._jumps_back
