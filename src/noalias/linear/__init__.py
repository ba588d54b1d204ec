"""``linear``: one operator through every layout, transform and capture."""
