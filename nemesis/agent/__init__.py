"""The node agent: the one root process on a host that injects real faults there.

It uses the standard library only, because it is shipped to hosts that have nothing else, and never imports the
rest of the harness.
"""
