"""An example of a third-party system for laststand: a log server of one node."""
