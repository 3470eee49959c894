"""The report's sections: each reads a run's files and returns what the page shows."""
