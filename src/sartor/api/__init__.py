"""What `import sartor` offers: `Result` and the functions that make one. May touch everything but `cli`."""
