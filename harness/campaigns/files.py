"""The names of the files of a campaign; `results.layout.CAMPAIGN_FILES` describes them."""

from results.layout import CAMPAIGN_PLAN

PLAN_FILE = CAMPAIGN_PLAN
ROWS_FILE = "rows.jsonl"
RESULT_FILE = "compare.json"
RUNS_FOLDER = "runs"
CORPUS_FOLDER = "corpus"
"""Of a guided campaign: the experiments of its new and its failing runs, one file per run."""
SHRUNK_PREFIX = "shrunk-"
"""Below `RUNS_FOLDER`, the folder of the shrunk run of a finding is called "shrunk-<signature>"."""
JOBS_FILE = "jobs.json"
"""The numbers of the jobs of a night; missing while it is not over."""

SEARCH_FILE = "search.json"
"""What a search for defects found; written at its end."""

SWARM, COMPARE, NIGHTLY, SEARCH = "swarm", "compare", "nightly", "search"
"""Kinds of campaigns."""

COMPARE_PAGE = "compare.html"
NIGHT_PAGE = "nightly.html"
SEARCH_PAGE = "search.html"
PAGE_FILES = {
    SWARM: COMPARE_PAGE,
    COMPARE: COMPARE_PAGE,
    NIGHTLY: NIGHT_PAGE,
    SEARCH: SEARCH_PAGE,
}
"""The page that shows the result of a campaign, by kind."""

NIGHT_PREFIX = f"{NIGHTLY}-"
"""The directory of a night is called "nightly-<night>"."""
