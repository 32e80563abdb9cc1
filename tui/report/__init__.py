"""The report: a run as one file to send to somebody, as a page or as a few lines of Markdown."""
