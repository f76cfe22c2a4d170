"""Telling people and programs outside what happens: webhooks, CloudEvents, mail and Apprise."""
