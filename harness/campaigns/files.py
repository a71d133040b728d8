"""The names of the files of a campaign; `results.layout.CAMPAIGN_FILES` describes them."""

PLAN_FILE = "plan.json"
ROWS_FILE = "rows.jsonl"
RESULT_FILE = "compare.json"
RUNS_FOLDER = "runs"
JOBS_FILE = "jobs.json"
"""The numbers of the jobs of a night; missing while it is not over."""

SWARM, COMPARE, NIGHTLY = "swarm", "compare", "nightly"
"""Kinds of campaigns."""

NIGHT_PREFIX = f"{NIGHTLY}-"
"""The directory of a night is called "nightly-<night>"."""
