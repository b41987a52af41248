"""The demo: a small real model, a server on an emulated mesh, one question."""
