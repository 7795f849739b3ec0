#!/usr/bin/env python3
"""cmake --install into an empty root, and the commands of docs/using.md from a folder that is not the checkout.

usage: install_test.py BUILD_FOLDER"""
import array
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(sys.argv.pop(1)).resolve()


def commands(section):
    """The commands of a section of docs/using.md, without comments."""
    block = (ROOT / "docs/using.md").read_text().split(f"## {section}\n")[1].split("## ")[0].split("```")[0]
    lines = [line[4:] for line in block.splitlines() if line.startswith("    ")]
    return [re.sub(r"\s+#.*", "", line) for line in lines]


class Install(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.home = pathlib.Path(folder.name) / "home"
        self.work = pathlib.Path(folder.name) / "work"
        self.home.mkdir()
        self.work.mkdir()
        self.env = {"HOME": str(self.home), "PATH": f"{self.home}/.local/bin:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}

    def run_line(self, line, status=0):
        done = subprocess.run(["sh", "-c", line], cwd=self.work, env=self.env, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, status, f"{line}\n{done.stdout}{done.stderr}")
        return done.stdout

    def test_an_empty_root_gets_the_program_its_pages_and_the_configurations(self):
        root = self.home / "root"
        self.env["DESTDIR"] = str(root)
        self.run_line(f"cmake --install {BUILD} --prefix /usr")
        installed = {str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir()}
        configs = {f"usr/share/dstrain/configs/{path.name}" for path in (ROOT / "configs").iterdir()
                   if path.suffix in (".json", ".sbatch")}
        pages = {"man/man1/dstrain.1": "--man", "bash-completion/completions/dstrain": "--completion bash",
                 "zsh/site-functions/_dstrain": "--completion zsh",
                 "fish/vendor_completions.d/dstrain.fish": "--completion fish"}
        self.assertEqual(installed, configs | {"usr/bin/dstrain"} | {f"usr/share/{page}" for page in pages})
        self.run_line(f"{root}/usr/bin/dstrain --version")
        for page, option in pages.items():
            printed = self.run_line(f"{root}/usr/bin/dstrain help {option}")
            self.assertEqual((root / "usr/share" / page).read_text(), printed, page)

    def write_inputs(self):
        (self.work / "input.txt").write_text("In the beginning God created the heaven and the earth.\n" * 200)
        (self.work / "other.txt").write_text("God created the earth.\n" * 9)
        (self.work / "hosts").write_text("node1 slots=2\nnode2 slots=2\n")
        (self.work / "a.txt").write_text("In the beginning\n")
        (self.work / "b.jsonl").write_text('{"text": "God created the heaven and the earth."}\n')
        (self.work / "tokens.bin").write_bytes(array.array("H", (i * i % 90 for i in range(500))).tobytes())
        (self.work / "gpt2.json").write_text(json.dumps({
            "model_type": "gpt2", "n_layer": 1, "n_embd": 8, "n_head": 2, "n_positions": 16, "vocab_size": 1000}))

    def make_gpt2(self):
        """A folder as save_pretrained writes it: that of a run of the model, with a tokenizer."""
        self.run_line(f"dstrain --model gpt2.json --config {ROOT}/configs/finetune.json --data tokens.bin --steps 0 --output gpt2")
        shutil.copy(ROOT / "tests/data/tokenizer/golden/gpt2.json", self.work / "gpt2/tokenizer.json")

    def make_chat_model(self):
        """A folder of a small model with a tokenizer and a chat template."""
        fresh = self.work / "fresh"
        fresh.mkdir()
        shutil.copy(ROOT / "tests/data/tokenizer/golden/llama3.json", fresh / "tokenizer.json")
        (fresh / "tokenizer_config.json").write_text(json.dumps({
            "eos_token": "<|end_of_text|>",
            "chat_template": "{% for m in messages %}{{ m.role }}: {{ m.content }}<|eot_id|>{% endfor %}"}))
        (fresh / "config.json").write_text(json.dumps({
            "model_type": "qwen2", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1,
            "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 1000, "max_position_embeddings": 64}))
        self.run_line(f"dstrain --model fresh --init_weights random --config {ROOT}/configs/finetune.json --data input.txt "
                      "--set dstrain.data.seq_len=16 --steps 0 --output qwen")

    def install(self, line):
        self.assertTrue(line.startswith("cmake --install build/release "), line)
        self.run_line(line.replace("build/release", str(BUILD)))

    def fine_tune(self, line):
        self.make_gpt2()
        self.run_line(line.replace("--epochs 1", "--steps 2"))

    def test_a_model_is_fine_tuned_in_three_commands(self):
        self.write_inputs()
        install, train, generate = commands("Fine-tuning in three commands")
        self.install(install)
        self.fine_tune(train)
        self.run_line(generate + " --tokens 3")

    def test_the_commands_of_the_page_for_users_hold_from_any_folder(self):
        self.write_inputs()
        lines = commands("Using it")
        self.install(lines[0])
        self.fine_tune(commands("Fine-tuning in three commands")[1])
        self.make_chat_model()
        shutil.copytree(ROOT / "tests/storage/foreign/data/gpt2", self.work / "checkpoint-500")
        smaller = {" --num_gpus 2 --data input.txt": " --num_gpus 2 --data input.txt --steps 1 --set train_batch_size=2 "
                                                     "--set dstrain.model.n_layer=1 --set dstrain.eval_interval=0",
                   "--tokens 300": "--tokens 3"}
        seen = set()
        for line in lines[1:]:
            # These need other machines, or a drive.
            if line.startswith(("dstrain doctor", "dstrain bench-io")):
                continue
            for long, short in smaller.items():
                line = line.replace(long, short)
            if line.startswith("dstrain watch"):  # it goes on until a signal comes
                self.run_line(f"timeout --preserve-status --signal=INT 3 {line}")
            else:
                self.run_line(line)
            seen.add(line.split()[1])
        self.assertGreaterEqual(seen, {"plan", "chat", "check", "estimate", "eval", "export", "generate", "hosts", "import", "teach", "tokenize",
                                       "report", "compare", "watch"})


if __name__ == "__main__":
    unittest.main()
