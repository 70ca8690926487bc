"""Labels of the Node that schedulers and dashboards know from gpu-feature-discovery: what they say (pure), where they are put,
and keeping them so. Off unless asked for; knows GPUs as facts only."""
