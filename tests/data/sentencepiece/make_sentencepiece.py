#!/usr/bin/env python3
"""Small SentencePiece models and the ids that the library itself gives for texts.

    python3 make_sentencepiece.py        # needs Debian's python3-sentencepiece (0.1.97) and python3-protobuf

Writes NAME.model and NAME.json: the pieces with scores and types, the rules, and texts with ids.
"""
import json
import random
import tempfile

import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as proto

SENTENCES = """
The quick brown fox jumps over the lazy dog and runs away from 1234567890 foxes in 2024.
A model of the attention is a matrix of rows that sum to one, whose second eigenvalue tells how tokens mix.
In the beginning there was a token, and the token was with the text, and the text was long.
Der schnelle braune Fuchs springt über den faulen Hund; größere Füchse laufen später nach Köln.
Le renard brun saute par-dessus le chien paresseux, où l'été naît déjà à l'aube.
Быстрая коричневая лиса прыгает через ленивую собаку, и никто этого не видит.
Η γρήγορη αλεπού πηδάει πάνω από το τεμπέλικο σκυλί.
素早い茶色の狐がのろまな犬を飛び越える。敏捷的棕色狐狸跳过了懒狗。
빠른 갈색 여우가 게으른 개를 뛰어넘는다.
الثعلب البني السريع يقفز فوق الكلب الكسول.
תיזהרו מהשועל החום המהיר שקופץ מעל הכלב.
for (int i = 0; i < n; ++i) { sum += x[i] * x[i]; }    // the sum of squares
def f(x):\treturn x ** 2 + 3 * x - 1
    indented by four,        by eight, and trailing   
Emoji: 😀😃😄 👩‍👩‍👧 🇩🇪 and é, é, ﬁ, ½, №, ①.
""".strip("\n").split("\n")

TEXTS = SENTENCES + [
    "", " ", "   ", "a", " a", "a ", "  two  spaces  ", "\n", "\n\nnew lines\n", "\ttab\ttab",
    "unknown: ᚠᛇᚻ 𒀀 \U0001F9FF", "\U0001F9FF", "ᚠᛇᚻᚠᛇᚻ", "x" * 300, "the" * 100,
    "▁ itself ▁▁", "ｆｕｌｌ ｗｉｄｔｈ　ｓｐａｃｅ", "e\u0301 and \u00e9", "zero\u200bwidth\u00a0no-break",
    "\x01\x02 control \x7f", "1 12 123 1234 12345", "<s> is not matched", "a<sep>b <sep> c<sep>",
    "user  \n defined <sep><sep>", "ΑΒΓ αβγ", "ß ẞ ſ", "\ud7ff\ue000\ufffd",
]


def random_texts():
    rng = random.Random(7)
    letters = "".join(sorted(set("".join(SENTENCES)))) + " " * 40 + "eeeetttaaooinn"
    return ["".join(rng.choice(letters) for _ in range(rng.randrange(1, 60))) for _ in range(120)]


def train(name, **options):
    with tempfile.TemporaryDirectory() as folder:
        corpus = folder + "/corpus.txt"
        with open(corpus, "w", encoding="utf-8") as file:
            file.write("\n".join(SENTENCES * 4))
        if "rules" in options:
            rules = folder + "/rules.tsv"
            with open(rules, "w", encoding="utf-8") as file:
                file.write(options.pop("rules"))
            options["normalization_rule_tsv"] = rules
        sentencepiece.SentencePieceTrainer.train(
            input=corpus, model_prefix=folder + "/m", num_threads=1, hard_vocab_limit=False,
            character_coverage=1.0, minloglevel=2, **options)
        with open(folder + "/m.model", "rb") as file:
            model = proto.ModelProto.FromString(file.read())
    model.trainer_spec.input[:] = []
    model.trainer_spec.model_prefix = name
    model.normalizer_spec.normalization_rule_tsv = ""
    data = model.SerializeToString()
    with open(name + ".model", "wb") as file:
        file.write(data)
    own = sentencepiece.SentencePieceProcessor(model_proto=data)
    texts = TEXTS + random_texts()
    with open(name + ".json", "w", encoding="ascii") as file:
        json.dump({
            "pieces": [[p.piece, p.score, p.type] for p in model.pieces],
            "charsmap": list(model.normalizer_spec.precompiled_charsmap),
            "space_before": model.normalizer_spec.add_dummy_prefix,
            "single_spaces": model.normalizer_spec.remove_extra_whitespaces,
            "texts": [[text, own.encode(text)] for text in texts]}, file, separators=(",", ":"))
        file.write("\n")


def rule(source, target):
    points = lambda text: " ".join(f"{ord(c):X}" for c in text)
    return f"{points(source)}\t{points(target)}\n"


WIDE = "".join(rule(chr(0xFF21 + i), chr(0x41 + i)) + rule(chr(0xFF41 + i), chr(0x61 + i))
               for i in range(26))
RULES = (WIDE + rule("\u3000", " ") + rule("\t", " ") + rule("\n", " ") + rule("e\u0301", "\u00e9")
         + rule("\ufb01", "fi") + rule("\u00bd", "1\u20442"))

train("bpe", model_type="bpe", vocab_size=700, byte_fallback=True, split_digits=True,
      normalization_rule_name="identity", remove_extra_whitespaces=False,
      allow_whitespace_only_pieces=True)
train("bpe_symbols", model_type="bpe", vocab_size=300, normalization_rule_name="identity",
      remove_extra_whitespaces=False, add_dummy_prefix=False,
      user_defined_symbols=["<sep>", "\n", "▁▁"])
train("unigram", model_type="unigram", vocab_size=420, rules=RULES, unk_id=2, bos_id=0, eos_id=1)
train("unigram_bytes", model_type="unigram", vocab_size=640, byte_fallback=True,
      normalization_rule_name="identity", remove_extra_whitespaces=False, add_dummy_prefix=False,
      allow_whitespace_only_pieces=True, user_defined_symbols=["<sep>"])
