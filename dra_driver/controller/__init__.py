"""ResourceSlices: devices -> slices (pure), difference to what is there (pure), apply; one publisher, one path for every reason to publish."""
