"""Makes a service an HTTP API: one application with limits, access, problems and documents."""
