"""One HTML page about a finished run; a pure function of its directory."""
