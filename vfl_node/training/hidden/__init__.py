"""Training in shares on exactly the shared records, without anybody learning which these are."""
