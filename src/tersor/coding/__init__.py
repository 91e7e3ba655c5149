"""Codes to bytes and back."""
