"""Alembic's entry into the migrations: the connection is the one that services/manager/database.py opened."""

from __future__ import annotations

from alembic import context

context.configure(connection=context.config.attributes["connection"], transactional_ddl=True)
with context.begin_transaction():
    context.run_migrations()
