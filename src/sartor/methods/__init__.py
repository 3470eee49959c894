"""Search methods: each learns a score over a space's choices; a solver makes the decision."""
