"""The vocabulary: architectures, quadratics, units, errors, seeds, tasks, the registry. Imports nothing of ours."""
