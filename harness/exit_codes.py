"""Exit codes, an interface (Jepsen's set)."""

from collections.abc import Mapping

VALID = 0
INVALID = 1
UNKNOWN = 2
USAGE = 254
FAILURE = 255
"""The harness failed or was interrupted, or could not obtain all requested values."""

MEANINGS: Mapping[int, str] = {
    VALID: "valid; or the command did what it was asked for, for example a completed `compare`, whatever it found",
    INVALID: "invalid: a promise was broken; of a comparison with predictions or expectations: something differs",
    UNKNOWN: "unknown: too little was tested or recorded for a verdict; this is not a pass",
    USAGE: "the command line, a file or a name is wrong; the sentence on standard error states how to correct it",
    FAILURE: "the harness failed, was interrupted, or could not obtain all requested values",
}
