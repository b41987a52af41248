"""What operators look at: step logs and a server's metrics, read and put into words and pictures.

Imports neither vllm nor torch.
"""
