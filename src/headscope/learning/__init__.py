"""Learned gates on heads and learned attention masks."""
