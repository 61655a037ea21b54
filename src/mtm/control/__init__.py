"""Acting: policies, return targets, environments, rollout."""
