"""What an honest-but-curious peer could learn from what it receives, measured."""
