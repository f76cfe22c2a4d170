"""Notifications of people and other programs: webhooks, CloudEvents, Event Grid and Apprise."""
