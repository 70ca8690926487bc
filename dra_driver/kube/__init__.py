"""The API server as raw JSON over the kubernetes package's ApiClient: requests, list-watch, claims, events. The only importer of kubernetes and urllib3."""
