"""Host names of Azure's public cloud, which programs may have built in."""

RESOURCE_MANAGER = ("management.azure.com", "management.core.windows.net")
LOGIN = ("login.microsoftonline.com", "login.microsoft.com", "login.windows.net")
AZURE_NAMES = (*RESOURCE_MANAGER, *LOGIN)
