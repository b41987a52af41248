"""Bundles in repositories of the Hugging Face Hub: fetching them and publishing them."""
