"""Tests of the engine against a real provider process."""
