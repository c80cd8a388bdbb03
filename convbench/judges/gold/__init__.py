"""Gold labels of people: drawn with known probabilities, given blind, used in estimates."""
