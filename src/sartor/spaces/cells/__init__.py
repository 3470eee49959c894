"""Cell spaces: `darts`, `darts_reduced` and `freecells`, their networks and genotypes."""
