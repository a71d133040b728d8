"""A run store as web pages: collected here, rendered by `results.report.site`, served or written as files."""
