"""Torch building blocks for adapters that compute on the host; import the modules you need."""
