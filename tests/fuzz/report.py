"""What a fuzzer reports."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One case that broke something.

    Attributes:
        case: Its number in the run.
        what: What broke, one sentence.
        data: The bytes, in hexadecimal, or a description of them.
    """

    case: int
    what: str
    data: str
