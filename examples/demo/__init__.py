"""`make demo`: wallets under attack from several processes, first without conditions, then with them.

    wallet    the rules of a wallet, and a withdrawal as one decision
    attack    the attackers: processes and threads that withdraw as fast as they can
    watch     a subscriber that follows the store while it is attacked
    screen    what you see
    proof     what is proven afterwards: the history and the file
    pipeline  the log on Spark: folded into balances, compared, audited, and drawn

`__main__` runs the parts one after the other and ends with exit code 1 if a claim does not hold.
"""
