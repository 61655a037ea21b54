"""What is visible: random patterns for training, named capabilities for asking."""
