import unittest

from shop.price import total


class Price(unittest.TestCase):
    def test_few(self) -> None:
        self.assertEqual(total(250, 3), 750)

    def test_ten(self) -> None:
        self.assertEqual(total(250, 10), 2250)
