"""Image data: where it comes from, how it is split, how it is augmented."""
