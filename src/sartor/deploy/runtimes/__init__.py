"""Runtimes, each loading what was exported and timing it."""
