"""A score from short trainings: networks inside the budget are tried, the best are tried longer."""

from sartor.methods.trials.method import Trials

PLUGIN = Trials
