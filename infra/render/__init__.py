"""Renders a stack without a cluster, a cloud, or Pulumi's command line."""
