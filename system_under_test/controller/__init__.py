"""The controller state machine: registrations, fencing, ISR and ELR, elections."""
