"""Who takes part in a job: peers, agreement, the joint coin toss, and what is remembered of an attempt and of a partner."""
