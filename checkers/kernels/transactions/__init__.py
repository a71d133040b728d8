"""Anomalies of transactions: Elle's inference for list-append histories, and its counterpart for logs.

`columns` defines the input, `Transactions`, and makes it from Python values (`transactions_of`).
"""
