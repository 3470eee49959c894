"""Data sources, one kind a file: from what a person has (folders, files, arrays, objects) to images of one shape."""
