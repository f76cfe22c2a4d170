"""Notifications of people and other programs: webhooks, CloudEvents and Apprise."""
