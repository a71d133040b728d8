"""Run store, history files, report."""
