"""Writes docs/grafana-dashboard.json, a Grafana dashboard over our metrics and vLLM's, from a short list of panels."""
