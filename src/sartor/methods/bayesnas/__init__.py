"""BayesNAS (arXiv:1905.04919): switches with hierarchical relevance priors."""

from sartor.methods.bayesnas.method import BayesNAS

PLUGIN = BayesNAS
