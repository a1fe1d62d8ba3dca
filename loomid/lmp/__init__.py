"""The Loomi Protocol itself: no I/O, no clock, no randomness, no logging."""
