"""Opaque configuration that users put into claims, templates and DeviceClasses, by API version."""
