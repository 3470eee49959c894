"""Data sources: from what a person has (folders, arrays, IDX, CIFAR) to labelled images of one shape."""
