"""Projections of the moderation log for people who ask questions in SQL."""
