"""Two small transactions, for tests of the kernels for transactions."""

from checkers.kernels.transactions.columns import Append, Read, Transaction

ONE = Transaction(id=1, ops=(Append("x", 1),))
READER = Transaction(id=2, ops=(Read("x", (1,)),))
