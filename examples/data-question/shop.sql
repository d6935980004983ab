CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT NOT NULL, town TEXT NOT NULL);
CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER NOT NULL REFERENCES customers, cents INTEGER NOT NULL, status TEXT NOT NULL);
INSERT INTO customers VALUES (1, 'Ada', 'Bergen'), (2, 'Björn', 'Oslo'), (3, 'Chen', 'Bergen'), (4, 'Dora', 'Oslo');
INSERT INTO orders VALUES (1, 1, 1250, 'paid'), (2, 1, 400, 'cancelled'), (3, 2, 9900, 'paid'), (4, 3, 3175, 'paid'), (5, 3, 2000, 'open'), (6, 4, 150, 'paid'), (7, 1, 825, 'paid');
