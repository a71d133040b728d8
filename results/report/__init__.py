"""The report of one run, and of a comparison."""

from results.report.build import build_report
from results.report.compare import build_compare_report
from results.report.terminal import terminal_summary

__all__ = ["build_compare_report", "build_report", "terminal_summary"]
