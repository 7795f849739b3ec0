"""Tokenizers of the tests, trained by the tokenizers library on text of many scripts, with the published patterns.

Nothing can be fetched, so these have the published tokenizers' forms and small vocabularies.
"""
import json
import pathlib
import string

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

TEXT = pathlib.Path(__file__).resolve().parent / "scripts.txt"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN3_5 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
           r"|\s*[\r\n]+|\s+(?!\S)|\s+")


def byte_level(use_regex=False, **options):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex, **options)


def split(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated", False), byte_level()])


def trained(pre_tokenizer, special, normalizer=None, size=900, text=None):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=special, show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.train_from_iterator((text or TEXT.read_text(encoding="utf-8")).splitlines(keepends=True), trainer)
    return tokenizer


def with_ignored_merges(tokenizer, words):
    """The tokenizer with `words` in its vocabulary, which no merge makes, and "ignore_merges"."""
    parts = json.loads(tokenizer.to_str())
    vocabulary = parts["model"]["vocab"]
    for word in words:
        vocabulary.setdefault(word, max(vocabulary.values()) + 1)
    parts["model"]["ignore_merges"] = True
    return Tokenizer.from_str(json.dumps(parts))


def gpt2(**options):
    tokenizer = trained(byte_level(True), ["<|endoftext|>"], **options)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def llama3(**options):
    tokenizer = trained(split(LLAMA3), [], **options)
    tokenizer = with_ignored_merges(tokenizer, ["\u0120unmergeable", "123", "\u0120\u0120\u0120"])
    tokenizer.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"])
    begin = tokenizer.token_to_id("<|begin_of_text|>")
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=True),
        processors.TemplateProcessing(single="<|begin_of_text|> $A", pair=None,
                                      special_tokens=[("<|begin_of_text|>", begin)])])
    return tokenizer


def qwen2(pattern=QWEN2, **options):
    tokenizer = trained(split(pattern), [], normalizers.NFC(), **options)
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokenizer.add_tokens([
        AddedToken("<think>", normalized=False), AddedToken("<mask>", lstrip=True, rstrip=False, normalized=False),
        AddedToken("caf\u00e9", normalized=True), AddedToken("solo", single_word=True),
        AddedToken("<sep>", rstrip=True, normalized=False, special=True), AddedToken("<sep><sep>", special=True)])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def qwen3_5(**options):
    return qwen2(QWEN3_5, **options)


MARK = "\u2581"
SPACES = normalizers.Replace(" ", MARK)
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def characters(normalizer, pre_tokenizer, strips, spaces_joined=False, size=900, **model):
    """A tokenizer with the marks of SentencePiece, byte fallback and not all characters of its text."""
    trained = Tokenizer(models.BPE())
    trained.normalizer = normalizer
    # Words are what merges are learnt from; where spaces are joined, so are words.
    if not spaces_joined:
        trained.pre_tokenizer = pre_tokenizers.Metaspace(MARK, prepend_scheme="never")
    text = TEXT.read_text(encoding="utf-8")
    trainer = trainers.BpeTrainer(vocab_size=size + 300, special_tokens=["<unk>", "<s>", "</s>"] + BYTES,
                                  show_progress=False, limit_alphabet=300, initial_alphabet=list(string.ascii_letters))
    trained.train_from_iterator(text.splitlines(keepends=True), trainer)
    parts = json.loads(trained.to_str())
    # Runs of spaces are tokens, as in published files, though the text has none.
    for spaces in (MARK, 2 * MARK, 4 * MARK):
        parts["model"]["vocab"].setdefault(2 * spaces, len(parts["model"]["vocab"]))
        parts["model"]["merges"].insert(0, [spaces, spaces])
    # The bytes' tokens are none of the added ones in published files.
    parts["added_tokens"] = [token for token in parts["added_tokens"] if token["content"] not in BYTES]
    tokenizer = Tokenizer.from_str(json.dumps(parts))
    old = json.loads(tokenizer.to_str())["model"]
    tokenizer.model = models.BPE(old["vocab"], [tuple(merge) for merge in old["merges"]],
                                 **{"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True, **model})
    tokenizer.pre_tokenizer = pre_tokenizer
    stages = [decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence(stages + ([decoders.Strip(" ", 1, 0)] if strips else []))
    tokenizer.add_special_tokens(["<|im_end|>", AddedToken("<sep>", rstrip=True, normalized=False)])
    tokenizer.add_tokens([AddedToken("<think>", normalized=False), AddedToken("caf\u00e9", normalized=True),
                          AddedToken("solo", single_word=True), AddedToken("\n\n", normalized=False)])
    begin = tokenizer.token_to_id("<s>")
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair=None, special_tokens=[("<s>", begin)])
    return tokenizer


def llama2(**options):
    return characters(normalizers.Sequence([normalizers.Prepend(MARK), SPACES]), None, True, **options)


def metaspace(scheme, split=False, **options):
    return characters(None, pre_tokenizers.Metaspace(MARK, prepend_scheme=scheme, split=split), True, **options)


def mistral(**options):
    return metaspace("first", **options)


def gemma(**options):
    return characters(SPACES, pre_tokenizers.Split(" ", "merged_with_previous", False), False, **options)


def unknown(**options):
    """Without byte fallback, and with merges over spaces: characters that are no token are one <unk>."""
    return characters(SPACES, None, False, spaces_joined=True, byte_fallback=False, **options)


ALL = {"gpt2": gpt2, "llama3": llama3, "qwen2": qwen2, "qwen3_5": qwen3_5, "llama2": llama2,
       "mistral": mistral, "gemma": gemma, "unknown": unknown}
