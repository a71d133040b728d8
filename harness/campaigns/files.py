"""The names of the files of a campaign; `results.layout.CAMPAIGN_FILES` describes them."""

PLAN_FILE = "plan.json"
ROWS_FILE = "rows.jsonl"
RESULT_FILE = "compare.json"
RUNS_FOLDER = "runs"
