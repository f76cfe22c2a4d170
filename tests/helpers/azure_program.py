"""A program that calls an Azure SDK, as a user's script would, in the environment that has it. Told
what to call by lines of JSON, it answers each with one:

    {"client": "compute", "call": "virtual_machines.begin_restart", "args": ["forewarn", "jumpbox"]}

Pollers are kept: {"wait": 0} waits for the first of them. It imports nothing of ours.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from typing import Any

CLIENTS = {
    "graph": ("azure.mgmt.resourcegraph", "ResourceGraphClient"),
    "compute": ("azure.mgmt.compute", "ComputeManagementClient"),
    "maintenance": ("azure.mgmt.maintenance", "MaintenanceManagementClient"),
    "resources": ("azure.mgmt.resource.resources", "ResourceManagementClient"),
    "subscriptions": ("azure.mgmt.resource.subscriptions", "SubscriptionClient"),
}


class Program:
    def __init__(self) -> None:
        identity = import_module("azure.identity")
        self._url = os.environ["ARM_URL"]
        if "IDENTITY_ENDPOINT" in os.environ:
            self._credential = identity.ManagedIdentityCredential()
        else:
            secret = os.environ["ARM_SECRET"]
            self._credential = identity.ClientSecretCredential(
                *("forewarn", secret.split("_")[1], secret),  # which begins with the token's id
                authority=self._url,
                disable_instance_discovery=True,
            )
        self._clients: dict[str, Any] = {}
        self._pollers: list[Any] = []

    def answer(self, line: str) -> dict[str, Any]:
        asked = json.loads(line)
        try:
            if "wait" in asked:
                return {"result": shown(self._pollers[asked["wait"]].result(120))}
            if "done" in asked:
                return {"result": self._pollers[asked["done"]].done()}
            client = function = self._client(asked["client"])
            for name in asked["call"].split("."):
                function = getattr(function, name)
            arguments = [modelled(client, argument) for argument in asked.get("args", ())]
            result = function(*arguments, **asked.get("options", {}))
            if hasattr(result, "polling_method"):
                self._pollers.append(result)
                return {"result": len(self._pollers) - 1}
            return {"result": shown(result)}
        except Exception as error:
            return {"error": f"{type(error).__name__}: {error}"}

    def _client(self, name: str) -> Any:
        if name not in self._clients:
            module, kind = CLIENTS[name]
            needed = [] if name in ("subscriptions", "graph") else [os.environ["ARM_SUBSCRIPTION"]]
            self._clients[name] = getattr(import_module(module), kind)(
                *(self._credential, *needed),
                base_url=self._url,
                credential_scopes=[f"{self._url}/.default"],
            )
        return self._clients[name]


def modelled(client: Any, argument: Any) -> Any:
    """Return an argument, or the model that {"model": NAME, …} stands for."""
    if not isinstance(argument, dict) or "model" not in argument:
        return argument
    module = type(client).__module__.rpartition("._")[0]
    models = import_module(f"{module}.models")
    fields = {key: modelled(client, value) for key, value in argument.items() if key != "model"}
    return getattr(models, argument["model"])(**fields)


def shown(result: Any) -> Any:
    if result is None or isinstance(result, str | int | bool):
        return result
    if hasattr(result, "as_dict"):
        return result.as_dict()
    return [shown(item) for item in result]


def main() -> None:
    program = Program()
    for line in sys.stdin:
        sys.stdout.write(json.dumps(program.answer(line), default=str) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
