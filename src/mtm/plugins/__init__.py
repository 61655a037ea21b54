"""A run's encoder inside other libraries: `sb3` for Stable-Baselines3, `tensordict` for TorchRL.

In plain PyTorch, `mtm.encoders.StateEncoder` and `StateActionEncoder` are modules as they are.
"""
