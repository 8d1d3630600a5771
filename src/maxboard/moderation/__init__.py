"""Verdicts and bans: the moderation log as values, and what follows from it. Nothing here talks to a server."""
