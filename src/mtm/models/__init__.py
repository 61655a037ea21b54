"""Tensors only: the network and its parts."""
