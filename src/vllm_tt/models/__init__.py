"""The models: bundles and tt-metal's generators, resolved to classes and registered with vLLM."""
