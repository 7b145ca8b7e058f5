"""A party's long-lived service: its peers, its jobs, what it stores, how it recovers."""
