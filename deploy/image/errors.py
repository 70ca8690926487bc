"""What goes wrong while a root is made."""


class ImageError(Exception):
    """Doing what, to what: why; next step."""
