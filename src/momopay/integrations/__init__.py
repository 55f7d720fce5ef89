"""Adapters: views of web frameworks that receive callbacks (webhooks), and an observer for OpenTelemetry."""
