"""Which operators of the installed PyTorch return a view of a base nobody can see."""
