"""Views for web frameworks that receive callbacks (webhooks), a Django app, and an observer for OpenTelemetry."""
