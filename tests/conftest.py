"""The environment that all tests share: an emulated N300 and no network."""

import os

# Before anything imports vLLM, which resolves the platform as it is imported.
os.environ.setdefault("TT_EMULATE", "N300")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["VLLM_NO_USAGE_STATS"] = "1"
os.environ["VLLM_LOGGING_LEVEL"] = "WARNING"
