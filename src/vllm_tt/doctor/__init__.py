"""What keeps vLLM from serving on this machine, each problem with its remedy. Imports nothing heavy."""
