"""Level search: the values that codes stand for."""
