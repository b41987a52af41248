"""The vLLM platform: its hooks, the configuration policies behind them and the shims for vLLM's releases."""
