"""Parts of the local Hub; its face is `tests.support.hub_server`."""
