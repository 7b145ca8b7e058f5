"""What the protocols with blinded identifiers share: lists on disk, how they are sent and checked, what is promised before."""
