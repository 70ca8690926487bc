"""The admission webhook: reviews of claims, templates and classes over TLS, and the certificate that it shows. It judges
opaque configuration for this driver with the decoder of prepare, and nothing else.
"""
