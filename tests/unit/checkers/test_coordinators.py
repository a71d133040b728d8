"""Which elections of the offsets topic concern a group."""

import numpy as np
import pytest

from checkers.kernels.coordinators import Coordinator
from checkers.kernels.elections import EXCUSED, UNEXCUSED
from harness.contracts.run_context import RunContext
from harness.history.schema import COORDINATOR_STATES
from tests.anomalies.runs import state, table

GROUP = "h"
"""Its hash is 104: partition 0 of 4, but partition 4 of 5."""


@pytest.mark.parametrize(("partition", "outcome"), [(0, EXCUSED), (3, UNEXCUSED)])
def test_the_partition_of_a_group_follows_from_the_highest_partition_of_the_offsets_topic(
    partition: int, outcome: int
) -> None:
    """The offsets topic has partitions 0 to 3. A flagged election of one of them is between commit and loss."""
    states = [{**state(2, 1, [1, 3], epoch=0), "partition": index} for index in range(4)]
    states.append({**state(150, 2, [2], epoch=1, flagged=True), "partition": partition})
    tables = {
        COORDINATOR_STATES: table("partition_states", states),
        "broker_states": table("broker_states", []),
        "faults": table("faults", []),
    }
    committed, gone = np.array([100]), np.array([200])
    losses = Coordinator(GROUP, tables, RunContext(elr_on=False)).losses(committed, gone)
    assert losses.tolist() == [outcome]
