"""Adapters to web frameworks: a view that receives callbacks (webhooks)."""
