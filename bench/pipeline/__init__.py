"""The fleet's whole path beside the same number of hops done by bare pika, in turns on one private broker."""
