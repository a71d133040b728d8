"""Documents that are generated from the code they describe."""
