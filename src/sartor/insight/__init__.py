"""Why a network was chosen and how far to believe it: explanations, factors, rankings. Never torch."""
