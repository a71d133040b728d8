"""Anomalies of transactions: Elle's inference for list-append histories, and its counterpart for logs.

| module | content |
|---|---|
| `columns` | the input: `Transactions`, and `transactions_of` for Python values |
| `check` | `check_list_append`, `check_log_transactions` and `check_inputs`: a history in, judged findings out |
| `writes`, `lists`, `logs` | who wrote what; version orders and dependencies of lists and of logs |
| `list_anomalies`, `log_anomalies`, `log_sequences`, `log_closing` | anomalies that need no cycle |
| `edges`, `components`, `cycles` | dependencies, strongly connected components, kinds of cycles |
| `isolation` | which isolation level each anomaly breaks |
| `events`, `validation` | the table `transaction_events` as transactions; what it must hold |
| `event_order` | what the order of recorded events shows beyond the times of transactions |
| `checker` | the checker `transactions` of our own runs |
| `found` | what is stated before it is judged, and the words of sentences |
"""
