"""Checkpoints of random weights, small enough to be made in a moment, in the formats that real ones have."""
