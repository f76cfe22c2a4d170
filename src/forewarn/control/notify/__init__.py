"""Notifications of people and other programs: webhooks, CloudEvents, mail and Apprise."""
