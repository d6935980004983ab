sed -i 's/prices\[:-1\]/prices/' shop/price.py
