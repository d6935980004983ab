"""What people and Prometheus look at: figures, gauges, events, experiments as pictures. It decides nothing."""
