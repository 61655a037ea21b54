"""A run's encoder inside other libraries: `sb3` for Stable-Baselines3, `tensordict` for TorchRL.

In plain PyTorch, `mtm.StateEncoder` and `mtm.StateActionEncoder` are modules as they are.
"""
