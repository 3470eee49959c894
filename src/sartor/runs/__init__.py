"""What a run leaves behind: its directory, its typed files, its progress, its certificate. May touch `core` alone."""
