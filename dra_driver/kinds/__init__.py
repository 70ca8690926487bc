"""What a device is: one file per kind, and the table of attributes. A kind makes devices real; it knows nothing of sharing."""
