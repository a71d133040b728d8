"""The small protocols that others implement."""
