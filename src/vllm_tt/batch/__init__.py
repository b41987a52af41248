"""The worker's own state of requests and rows, and the inputs built from it."""
