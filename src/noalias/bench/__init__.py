"""Measurements: the three-way table, the hot path, cures, growth curves, real models, overhead.

Every number is taken inside one process, with the variants interleaved, and is reported as minimum
and median together with the machine and the versions that made it.
"""
