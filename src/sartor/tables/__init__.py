"""Scores and frontiers from tables of networks that other people measured. Never torch."""
