"""What a run leaves behind: its directory, its progress, its certificate. May touch `core` alone."""
