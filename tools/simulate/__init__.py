"""Runs the phase scheduler against a virtual device: which policy, which pool, how long will users wait.

``python -m tools.simulate --help`` from the root of the repository.
"""
