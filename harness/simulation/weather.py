"""Weather: all irregularities of a run that are not in the fault schedule.

These are latencies and their tails, late timers, the order of simultaneous events, CPU time, slow disks,
write-back without an fsync, drifting clocks, and rare branches. `CALM` has none of them, so that the run is easy
to read; `draw_weather` draws the weather of one seed.
"""

from dataclasses import dataclass
from random import Random

US = 1_000
MS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """The irregularities of one run.

    Attributes:
        name: For reports.
        latency_base_ns: One-way latency between brokers and controllers.
        latency_tail_ns: Scale of the tail: a frame takes base + tail * u**4 with u uniform in [0, 1).
        client_latency_base_ns: One-way base latency of a link with a client or the harness at one end.
        timer_lateness_mean_ns: Mean of the exponentially distributed lateness of timers. Timers are never early.
        shuffle_ties: Whether the order of simultaneous events and of runnable nodes is drawn; otherwise FIFO.
        cpu_ns_per_callback: CPU time of one callback; 0 for an infinitely fast machine.
        fsync_base_ns: Minimum duration of one fsync.
        fsync_tail_ns: Scale of the tail of the fsync duration, as for `latency_tail_ns`.
        blocking_fsync_takes_time: Whether `fsync_blocking` and `fsync_dir` keep the node busy.
        disk_profile: "ext4", "xfs" or "posix-strict"; see `device.py`.
        background_writeback: Whether the kernel commits journals and writes old pages without an fsync.
        clock_drift_ppm_max: Largest drift of the monotonic clock of a node, in millionths.
        buggify: Whether nodes take rare but legal branches.
    """

    name: str
    latency_base_ns: int = 250 * US
    latency_tail_ns: int = 0
    client_latency_base_ns: int = 250 * US
    timer_lateness_mean_ns: int = 0
    shuffle_ties: bool = False
    cpu_ns_per_callback: int = 0
    fsync_base_ns: int = 300 * US
    fsync_tail_ns: int = 0
    blocking_fsync_takes_time: bool = False
    disk_profile: str = "ext4"
    background_writeback: bool = False
    clock_drift_ppm_max: int = 0
    buggify: bool = False


CALM = Weather(name="calm")


def draw_weather(stream: Random) -> Weather:
    """Draws the weather of one run.

    Each draw is made independently of the others, so that the weather of a seed stays comparable when one choice
    is edited.
    """
    base_ms = 0.1 * 500.0 ** stream.random()  # log-uniform, 0.1 to 50 ms
    tail_factor = (0.0, 1.0, 4.0, 20.0)[int(stream.random() * 4)]
    clients_far = stream.random() < 0.5
    lateness_ns = (0, 100 * US, 1 * MS, 20 * MS)[int(stream.random() * 4)]
    cpu_ns = (0, 0, 5 * US, 30 * US)[int(stream.random() * 4)]
    fsync_ms = 0.05 * 400.0 ** stream.random()  # log-uniform, 0.05 to 20 ms
    fsync_tail_factor = (0.0, 2.0, 10.0, 50.0)[int(stream.random() * 4)]
    blocking = stream.random() < 0.5
    profile = ("ext4", "ext4", "xfs", "posix-strict")[int(stream.random() * 4)]
    background = stream.random() < 0.5
    drift_ppm = (0, 50, 500)[int(stream.random() * 3)]
    buggify = stream.random() < 0.5
    return Weather(
        name="drawn",
        latency_base_ns=int(base_ms * MS),
        latency_tail_ns=int(base_ms * tail_factor * MS),
        # Clients with low latency see more anomalies (in Maelstrom, clients have no latency at all).
        client_latency_base_ns=int(base_ms * MS) if clients_far else 50 * US,
        timer_lateness_mean_ns=lateness_ns,
        shuffle_ties=True,
        cpu_ns_per_callback=cpu_ns,
        fsync_base_ns=int(fsync_ms * MS),
        fsync_tail_ns=int(fsync_ms * fsync_tail_factor * MS),
        blocking_fsync_takes_time=blocking,
        disk_profile=profile,
        background_writeback=background,
        clock_drift_ppm_max=drift_ppm,
        buggify=buggify,
    )
