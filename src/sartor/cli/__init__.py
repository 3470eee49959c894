"""The command line, one file for each group of commands. May touch everything; nothing touches it."""
