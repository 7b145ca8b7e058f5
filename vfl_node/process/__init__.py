"""What a process has of its machine: files, logs, memory, places where a test may stop it."""
