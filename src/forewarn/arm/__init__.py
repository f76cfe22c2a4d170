"""Azure Resource Manager, as far as maintenance goes: an API with which `az` and Azure's SDKs,
unmodified, list the machines of a fleet, restart and redeploy, evict and delete them.

It shares the tokens, roles, limits and history of the control API, and decides nothing itself.
"""
