"""What all trainings in shares have in common: agreeing on what masks are made for, and dealing."""
