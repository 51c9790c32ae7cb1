"""Screens that compare texts of different authors."""
