"""Measures the host's side of serving, on a device that computes nothing and takes as long as it is told.

``python -m tools.bench --help`` from the root of the repository.
"""
