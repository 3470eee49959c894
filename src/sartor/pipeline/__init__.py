"""One order of stages: options, what a run works with, the stages, and who comes after whom."""
