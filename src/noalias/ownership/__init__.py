"""Who else can see this tensor, and what follows."""
