"""Runs a model on a mesh, one step at a time."""
