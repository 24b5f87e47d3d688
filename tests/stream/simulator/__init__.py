"""The real stream and its real store, on a simulated server, under a scheduler that a seed decides.

Processes, their threads and the server take turns at every message and every statement, in an order drawn from the
seed. Faults are drawn from it too: processes and the server die at any step, requests arrive in part or too late, replies
are lost, the server comes back without its last commits or with half of a write. After every step the world is looked
at. A seed that fails fails again in the same way.
"""
