"""Logs (JSON lines), Prometheus metrics, liveness and readiness over HTTP. Reports, never decides."""
