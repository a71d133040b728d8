"""The protocols that other packages implement."""
