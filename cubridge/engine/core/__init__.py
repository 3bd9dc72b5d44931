"""What both engines share: bodies as linear code, expressions as closures, the scheduler, barriers, deadlocks."""
