"""Plain, slow versions of hot functions: the first oracle of each. Ten lines a function, no cleverness."""
