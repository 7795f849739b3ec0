#!/usr/bin/env python3
"""Writes golden.json: what transformers makes of the templates of templates.py, and dstrain's own, and which tokens are
the assistant's.

  python3 -m venv .deps/transformers && .deps/transformers/bin/pip install transformers==5.24.0 jinja2==3.1.6
  .deps/transformers/bin/python tests/data/chat/golden/make_golden.py
"""
import json
import pathlib
import re

import templates
import transformers
from transformers.utils.chat_template_utils import _compile_jinja_template

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[3]
TOKENIZERS = HERE.parents[1] / "tokenizer" / "golden"
CALL = {"type": "function", "function": {"name": "weather", "arguments": {"zip": 8001, "city": "Zürich", "deep": {"b": [1, 2.5, None], "a": True}}}}

CONVERSATIONS = [
    [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi there!"}],
    [{"role": "system", "content": "  Be brief.\n"}, {"role": "user", "content": " What is 1+1? \n"},
     {"role": "assistant", "content": "\n2 "}, {"role": "user", "content": "and 2+2?"},
     {"role": "assistant", "content": "Four, i.e. 4."}],
    [{"role": "user", "content": "日本語で cafe\u0301 'quote' \"double\" \\ 😀"},
     {"role": "assistant", "content": "e\u0301te\u0301 \u212b 한국 \u1112\u1161\u11ab\u2028 end"}],
    [{"role": "user", "content": "The weather?"}, {"role": "assistant", "content": "", "tool_calls": [CALL]},
     {"role": "tool", "content": "{\"t\": 21}"}, {"role": "assistant", "content": "It is 21 degrees."}],
    [{"role": "user", "content": "think"}, {"role": "assistant", "content": "<think>\nwell\n</think>\n\nDone."},
     {"role": "user", "content": "again"}, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nOnce more."}],
    [{"role": "user", "content": ""}, {"role": "assistant", "content": ""}],
    [{"role": "assistant", "content": "I begin."}, {"role": "user", "content": "<|im_end|> in a text"}],
    [{"role": "user", "content": "q%d {{ x }} {%% if %%}" % i if i % 2 == 0 else "a%d" % i}
     | {"role": "user" if i % 2 == 0 else "assistant"} for i in range(8)],
]


def tokenizer(name):
    return transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(TOKENIZERS / f"{name}.json"), bos_token="<s>", eos_token="</s>",
        additional_special_tokens=["<|im_start|>", "<|im_end|>", "<|eot_id|>"])


def rendered(own, text, messages, prompt):
    try:
        return own.apply_chat_template(messages, chat_template=text, tokenize=False, add_generation_prompt=prompt)
    except Exception as e:
        print("refused:", type(e).__name__, e)
        return None


def masks(own, text, messages):
    try:
        out = own.apply_chat_template(messages, chat_template=text, tokenize=True, return_dict=True,
                                      return_assistant_tokens_mask=True)
    except Exception:
        return None
    return {"ids": out["input_ids"], "mask": out["assistant_masks"]}


def built_in():
    source = (ROOT / "runtime/data/chat/built_in_templates.cpp").read_text()
    return {name.lower(): text for name, text in re.findall(r'k(\w+) = R"\((.*?)\)";', source, re.DOTALL)}


def snippet(text):
    try:
        return _compile_jinja_template(text).render(x=templates.X)
    except Exception as e:
        print("refused:", repr(text), type(e).__name__, e)
        return None


def without_marks(text):
    return re.sub(r"\{%-?\s*(end)?generation\s*[-+]?%\}", "", text)


def main():
    golden = {"transformers": transformers.__version__, "conversations": CONVERSATIONS, "x": templates.X,
              "templates": {}, "snippets": [[text, snippet(text)] for text in templates.SNIPPETS]}
    tokenizers = {name: tokenizer(name) for name in ("llama3", "qwen2")}
    for name, own in tokenizers.items():
        own.backend_tokenizer.save(str(HERE / f"{name}_chat.json"), pretty=False)
    every = templates.ALL | {f"built_in_{name}": text for name, text in built_in().items()}
    for name, text in every.items():
        entry = golden["templates"][name] = {"text": text, "unmarked": None, "rendered": [], "tokens": {}}
        if name in templates.WITHOUT_MARKS:
            entry["unmarked"] = without_marks(text)
            for messages in CONVERSATIONS:
                own = tokenizers["qwen2"]
                assert rendered(own, text, messages, False) == rendered(own, entry["unmarked"], messages, False), name
        for messages in CONVERSATIONS:
            entry["rendered"].append([rendered(tokenizers["llama3"], text, messages, prompt) for prompt in (False, True)])
        for tokens, own in tokenizers.items():
            entry["tokens"][tokens] = [masks(own, text, messages) for messages in CONVERSATIONS]
    lines = json.dumps(golden, ensure_ascii=False, separators=(",", ":"))
    (HERE / "golden.json").write_text(lines.replace('"built_in', '\n"built_in').replace('{"text"', '\n{"text"') + "\n",
                                      encoding="utf-8")


if __name__ == "__main__":
    main()
