"""The transaction coordinator's state machine, the records of `__transaction_state`, and responses."""
