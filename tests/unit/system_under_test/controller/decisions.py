"""A started story for the tables of the controller's decisions."""

from tests.controller_story import Story, policy_of

ELR_ON, ELR_OFF = "kafka-4.1", "kafka-4.0"


def started(profile: str = ELR_ON, min_isr: int = 2, **kwargs) -> Story:
    s = Story(policy_of(profile, **kwargs))
    s.start(1, 2, 3)
    s.topic((1, 2, 3), min_isr)
    s.marks.clear()
    return s
