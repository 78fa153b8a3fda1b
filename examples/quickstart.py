"""Score sentences with the embedded model: which of two is the likelier English?"""

import mlmfast

PAIRS = [
    ("The cat sat on the mat.", "The mat sat on the cat."),
    ("These casseroles disgust Kayla.", "These casseroles disgusts Kayla."),
    ("She saw herself in the mirror.", "She saw himself in the mirror."),
]


def main() -> None:
    with mlmfast.load() as scorer:
        texts = [text for pair in PAIRS for text in pair]
        scores = scorer.score(texts)
    for good, bad in zip(scores[::2], scores[1::2], strict=True):
        for result in (good, bad):
            print(f"{result.pll:9.3f}  {result.num_tokens:3d} tokens  PPPL {result.pppl:9.2f}  {result.text}")
        print()


if __name__ == "__main__":
    main()
