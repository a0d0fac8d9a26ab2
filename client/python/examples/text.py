"""Text for the examples that learn one: short sentences of a small grammar, from which each word is drawn with equal chances."""

import math
import random

GRAMMAR = (
    ("the", "one", "every"),
    ("red", "small", "old", "quick"),
    ("fox", "dog", "bird", "child"),
    ("sees", "hears", "follows"),
    ("a", "the"),
    ("green", "loud", "slow"),
    ("train", "river", "horse", "machine"),
    ("at noon.", "at night.", "in spring."),
)


def sentences(count, seed=1):
    """A text of so many sentences, one behind the other."""
    choose = random.Random(seed)
    return " ".join(" ".join(choose.choice(words) for words in GRAMMAR) for _ in range(count)) + " "


def least_loss():
    """The least mean loss of each character that a model can have: the entropy of a sentence, by its mean length."""
    entropy = sum(math.log(len(words)) for words in GRAMMAR)
    length = sum(sum(map(len, words)) / len(words) + 1 for words in GRAMMAR)
    return entropy / length


class Letters:
    """Characters as numbers, and back."""

    def __init__(self, text):
        self.all = sorted(set(text))
        self._numbers = {letter: number for number, letter in enumerate(self.all)}

    def __len__(self):
        return len(self.all)

    def numbers(self, text):
        return [self._numbers[letter] for letter in text]

    def text(self, numbers):
        return "".join(self.all[number] for number in numbers)
