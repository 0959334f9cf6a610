"""The fault corpus: mistakes made on purpose, the checkers that see each, and launches in which nothing is found."""
