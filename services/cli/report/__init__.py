"""`ratchet report`: one HTML page of all an agent learned. Gather (files in), draw (pure), and write out the page."""
