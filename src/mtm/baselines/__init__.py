"""What the masked model is compared with."""
