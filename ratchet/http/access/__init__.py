"""Decides who may do what: roles, the matrix of routes, keys, tokens, the guard before every route, and the audit."""
