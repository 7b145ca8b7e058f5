"""Alignment with several passive parties: every list goes round by the active party, which relays it from one to the next."""
