"""Programs that runners run: how they are declared, what they require, the images that they see, and their revision."""
