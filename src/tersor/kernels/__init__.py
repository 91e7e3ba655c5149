"""The operations that touch every coordinate, in several backends that give the same bytes."""
