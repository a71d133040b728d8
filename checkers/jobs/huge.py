"""x"""

HUGE_OPERATIONS = 20_000_000


def judge_huge(session, task):
    raise NotImplementedError
