# Run inside a sandbox: makes the database of its dump, then hands the task to tool-agent with the tools for databases.
set -eu
python3 -c 'import sqlite3; sqlite3.connect("shop.sqlite").executescript(open("shop.sql").read())'
exec /ratchet/environment/bin/python -I /ratchet/run.py agent --tools 'db_tables,db_describe,db_query'
