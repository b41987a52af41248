"""Runs an adapter against the contract, row by row, in a process of its own."""
