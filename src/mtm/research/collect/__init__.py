"""Making data: train a behaviour agent and record it, or explore without reward.

`behaviour` writes D4RL's four kinds of data, `explore` writes ExORL's episodes. Both can be stopped
at any time and go on when the same command is given again.
"""
